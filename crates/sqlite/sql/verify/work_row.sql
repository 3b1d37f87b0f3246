-- Work without the row that duplicates meet would be done once per duplicate.
SELECT 'item ' || q.item_id FROM /*p*/inbox_queue AS q
LEFT JOIN /*p*/inbox AS i ON i.row_id = q.item_id
WHERE i.row_id IS NULL OR i.peer_id <> q.peer_id;
