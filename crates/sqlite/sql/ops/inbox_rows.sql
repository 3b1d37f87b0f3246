-- Rows between two places, newest first.
SELECT row_id, peer_id, message_id, status, endpoint, message_type, received_at, processed_at
FROM /*p*/inbox
WHERE row_id < ?1 AND row_id > ?2
ORDER BY row_id DESC
LIMIT ?3;
