-- The dedup row, written first. Touches no row if the message is known.
INSERT INTO /*p*/inbox (
    peer_id, message_id, status, endpoint, message_type, body_hash, available_at, received_at, replay,
    processed_at, response_type, response
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
ON CONFLICT DO NOTHING;
