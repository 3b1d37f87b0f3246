-- What enqueueing finds out about a known message.
SELECT i.row_id, i.status, i.hash_algorithm, i.body_hash, q.item_id IS NOT NULL, q.lease_until,
    q.attempts, q.ordering_key, i.handler IS NOT NULL
FROM /*p*/inbox AS i
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id
WHERE i.peer_id = ?1 AND i.message_id = ?2;
