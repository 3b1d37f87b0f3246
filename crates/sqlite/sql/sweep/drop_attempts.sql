DELETE FROM /*p*/outbox_attempts WHERE seq = ?1;
