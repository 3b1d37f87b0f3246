-- Rows of the messages with this id, of every consumer and source.
SELECT i.row_id, i.peer_id, i.message_id, i.status, i.endpoint, i.message_type, i.received_at, i.processed_at,
    q.ordering_key
FROM /*p*/inbox_peers AS p
CROSS JOIN /*p*/inbox AS i ON i.peer_id = p.peer_id
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id
WHERE i.message_id = ?1
LIMIT ?2;
