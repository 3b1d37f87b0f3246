-- Runs again, from the beginning and without a time to live: somebody wants it done now.
UPDATE /*p*/inbox_queue
SET state = 'Open', reason = NULL, attempts = 0, ready_at = ?2, scheduled = 0, joined = ?3, expires_at = ?4
WHERE item_id = ?1 AND state <> 'Open';
