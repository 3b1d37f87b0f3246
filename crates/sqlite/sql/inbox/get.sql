SELECT status, body_hash, replay, processed_at, response_type, response, error
FROM /*p*/inbox
WHERE peer_id = ?1 AND message_id = ?2;
