-- A message by its id, without a scan.
SELECT seq, status, retry_count, last_error FROM /*p*/outbox_messages WHERE seq IN (
    SELECT seq FROM /*p*/outbox_log WHERE message_id = ?1
    UNION SELECT seq FROM /*p*/outbox_waiting WHERE message_id = ?1);
