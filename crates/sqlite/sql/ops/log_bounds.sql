SELECT (SELECT min(seq) FROM /*p*/outbox_log), (SELECT max(seq) FROM /*p*/outbox_log);
