-- What a listing shows of a row beside what it is found by.
SELECT q.ordering_key, q.item_id IS NOT NULL, coalesce(q.attempts, 0), coalesce(q.last_error, i.error)
FROM /*p*/inbox AS i
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id
WHERE i.row_id = ?1;
