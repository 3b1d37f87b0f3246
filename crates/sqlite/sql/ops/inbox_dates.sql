-- The dates of the next rows: one of them may be wrong.
SELECT row_id, received_at FROM /*p*/inbox WHERE row_id >= ?1 ORDER BY row_id LIMIT 3;
