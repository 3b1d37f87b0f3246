-- Those in the queue, the dead ones as well.
SELECT q.item_id, i.peer_id, i.message_id, i.status, i.endpoint, i.message_type, i.received_at, i.processed_at,
    q.ordering_key
FROM /*p*/inbox_queue AS q
CROSS JOIN /*p*/inbox AS i ON i.row_id = q.item_id
WHERE q.item_id < ?1 AND q.item_id > ?2
ORDER BY q.item_id DESC
LIMIT ?3;
