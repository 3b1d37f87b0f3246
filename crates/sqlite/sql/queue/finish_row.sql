-- Done is final: only what is still to be done becomes it.
UPDATE /*p*/inbox
SET status = 'Done', processed_at = ?2, response_type = ?3, response = ?4, error = NULL, claimed_at = NULL
WHERE row_id = ?1 AND status <> 'Done';
