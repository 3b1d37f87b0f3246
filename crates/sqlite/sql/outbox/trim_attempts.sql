-- Keeps the last few attempts of a message.
DELETE FROM /*p*/outbox_attempts WHERE seq = ?1 AND attempt_id <= (
    SELECT attempt_id FROM /*p*/outbox_attempts WHERE seq = ?1 ORDER BY attempt_id DESC LIMIT 1 OFFSET ?2);
