SELECT i.status, i.body_hash, i.replay, i.processed_at, i.response_type, i.response, i.error, i.hash_algorithm,
    EXISTS (SELECT 1 FROM /*p*/inbox_queue AS q WHERE q.item_id = i.row_id), i.row_id, i.available_at,
    i.handler IS NOT NULL
FROM /*p*/inbox AS i
WHERE i.peer_id = ?1 AND i.message_id = ?2;
