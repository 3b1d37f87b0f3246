UPDATE /*p*/inbox SET status = 'Processing', claimed_at = ?2 WHERE row_id = ?1 AND status = 'Seen';
