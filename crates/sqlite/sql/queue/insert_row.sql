-- The dedup row of a message that is handled later.
INSERT INTO /*p*/inbox (
    peer_id, message_id, status, endpoint, message_type, hash_algorithm, body_hash, available_at, received_at
) VALUES (?1, ?2, 'Processing', ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT DO NOTHING;
