SELECT item_id FROM /*p*/inbox_queue
WHERE peer_id = ?1 AND ordering_key = ?2 AND joined IS NOT NULL
ORDER BY joined
LIMIT 1;
