-- As if it had never been seen.
DELETE FROM /*p*/inbox WHERE row_id = ?1 AND status IN ('Dead', 'Expired');
