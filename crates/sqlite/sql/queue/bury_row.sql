-- What dies here is a dead letter of this inbox, and those have a handler.
UPDATE /*p*/inbox
SET status = ?2, processed_at = ?3, error = ?4, claimed_at = NULL, handler = coalesce(handler, '')
WHERE row_id = ?1 AND status <> 'Done';
