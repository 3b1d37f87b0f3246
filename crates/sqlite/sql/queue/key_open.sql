SELECT item_id, attempts FROM /*p*/inbox_queue
WHERE peer_id = ?1 AND ordering_key = ?2 AND joined IS NOT NULL AND state = 'Open';
