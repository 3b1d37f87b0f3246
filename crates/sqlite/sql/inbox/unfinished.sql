SELECT p.source, i.message_id, i.status, i.handler, i.claimed_at
FROM /*p*/inbox_peers AS p
JOIN /*p*/inbox AS i ON i.peer_id = p.peer_id
WHERE p.consumer = ?1 AND i.claimed_at <= ?2
ORDER BY i.claimed_at
LIMIT ?3;
