-- Those that died or expired. Left alone, SQLite would walk the table.
SELECT row_id, peer_id, message_id, status, endpoint, message_type, received_at, processed_at
FROM /*p*/inbox INDEXED BY /*p*/inbox_died
WHERE status IN ('Dead', 'Expired') AND row_id < ?1 AND row_id > ?2
ORDER BY row_id DESC
LIMIT ?3;
