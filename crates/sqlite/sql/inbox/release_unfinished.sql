DELETE FROM /*p*/inbox WHERE row_id IN (
    SELECT i.row_id
    FROM /*p*/inbox_peers AS p
    JOIN /*p*/inbox AS i ON i.peer_id = p.peer_id
    WHERE p.consumer = ?1 AND i.claimed_at <= ?2
    LIMIT ?3)
RETURNING peer_id;
