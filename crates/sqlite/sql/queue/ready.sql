SELECT
    q.item_id, p.source, q.destination, i.message_id, i.endpoint, i.message_type, q.payload, q.content_type,
    q.correlation_id, q.ordering_key, q.headers, q.created_at, q.due_at, q.expires_at,
    q.attempts, q.lease_token, q.lease_owner IS NOT NULL, q.joined, q.last_error, q.peer_id, i.received_at,
    coalesce(i.last_seen_at, i.received_at), i.replay, q.ready_at
FROM /*p*/inbox_queue AS q
JOIN /*p*/inbox_peers AS p ON p.peer_id = q.peer_id
JOIN /*p*/inbox AS i ON i.row_id = q.item_id
WHERE q.consumer = ?1 AND q.scheduled = ?2 AND q.ready_at <= ?3
ORDER BY q.ready_at, q.item_id
LIMIT ?4;
