-- A rejection is stored like a response, so that a duplicate gets the same answer.
UPDATE /*p*/inbox SET status = 'Dead', processed_at = ?3, error = ?4
WHERE peer_id = ?1 AND message_id = ?2 AND status = 'Processing';
