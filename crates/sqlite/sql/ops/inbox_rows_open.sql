-- Those somebody is to handle or handles: in the queue, or claimed before handling.
SELECT q.item_id, i.peer_id, i.message_id, i.status, i.endpoint, i.message_type, i.received_at, i.processed_at
FROM /*p*/inbox_queue AS q
CROSS JOIN /*p*/inbox AS i ON i.row_id = q.item_id
WHERE q.item_id < ?1 AND q.item_id > ?2
UNION ALL
SELECT row_id, peer_id, message_id, status, endpoint, message_type, received_at, processed_at
FROM /*p*/inbox
WHERE claimed_at IS NOT NULL AND status = 'Processing' AND row_id < ?1 AND row_id > ?2
ORDER BY 1 DESC
LIMIT ?3;
