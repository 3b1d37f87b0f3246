SELECT
    i.status, i.endpoint, q.payload, i.hash_algorithm, i.body_hash, coalesce(q.attempts, 0), i.received_at,
    coalesce(i.last_seen_at, i.received_at), q.due_at, q.ready_at, q.lease_owner, q.lease_until,
    coalesce(q.last_error, i.error), q.reason
FROM /*p*/inbox_peers AS p
JOIN /*p*/inbox AS i ON i.peer_id = p.peer_id
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id
WHERE p.consumer = ?1 AND p.source = ?2 AND i.message_id = ?3;
