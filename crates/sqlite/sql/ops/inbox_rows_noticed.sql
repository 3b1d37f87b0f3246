-- Those that were noticed and not queued.
SELECT row_id, peer_id, message_id, status, endpoint, message_type, received_at, processed_at
FROM /*p*/inbox
WHERE claimed_at IS NOT NULL AND status = ?4 AND row_id < ?1 AND row_id > ?2
ORDER BY row_id DESC
LIMIT ?3;
