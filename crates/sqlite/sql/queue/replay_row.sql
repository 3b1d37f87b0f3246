UPDATE /*p*/inbox SET status = 'Processing', processed_at = NULL, error = NULL
WHERE row_id = ?1 AND status IN ('Dead', 'Expired');
