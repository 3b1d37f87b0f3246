INSERT INTO /*p*/inbox (
    peer_id, message_id, status, endpoint, message_type, hash_algorithm, body_hash, available_at, received_at,
    claimed_at, handler, claim_token, replay
) VALUES (?1, ?2, ?3, ?4, 'Signal', ?5, ?6, ?9, ?7, ?7, ?8, ?10, ?11)
ON CONFLICT DO NOTHING;
