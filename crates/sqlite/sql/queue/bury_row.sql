UPDATE /*p*/inbox SET status = ?2, processed_at = ?3, error = ?4, claimed_at = NULL
WHERE row_id = ?1 AND status <> 'Done';
