-- A message that was noticed, claimed by somebody or given up is handled later.
UPDATE /*p*/inbox
SET status = 'Processing', claimed_at = NULL, processed_at = NULL, response_type = NULL, response = NULL
WHERE row_id = ?1;
