SELECT i.hash_algorithm, i.body_hash, i.available_at, coalesce(i.last_seen_at, i.received_at), i.replay,
    octet_length(i.response), i.response_type, i.handler, i.claimed_at,
    q.item_id IS NOT NULL, octet_length(q.payload), q.content_type, q.headers, q.correlation_id, q.due_at, q.expires_at,
    q.ready_at, q.lease_owner, q.lease_until, q.last_attempt_at, q.reason
FROM /*p*/inbox AS i
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id
WHERE i.row_id = ?1;
