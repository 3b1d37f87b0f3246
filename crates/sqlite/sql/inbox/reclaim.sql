-- A stored rejection is run again under a higher replay number.
UPDATE /*p*/inbox SET status = 'Processing', replay = ?3, error = NULL, processed_at = NULL
WHERE peer_id = ?1 AND message_id = ?2 AND status = 'Dead' AND replay < ?3
RETURNING row_id, handler IS NOT NULL;
