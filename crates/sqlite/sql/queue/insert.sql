INSERT INTO /*p*/inbox_queue (
    item_id, consumer, peer_id, destination, payload, content_type, correlation_id, ordering_key, headers, created_at,
    due_at, expires_at, ready_at, scheduled, joined
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15);
