-- The dedup row, written first. Touches no row if the message is known.
INSERT INTO /*p*/inbox (
    peer_id, message_id, status, endpoint, message_type, body_hash, available_at, received_at, replay
) VALUES (?1, ?2, 'Processing', ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT DO NOTHING;
