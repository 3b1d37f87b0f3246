UPDATE /*p*/inbox_queue SET joined = NULL
WHERE peer_id = ?1 AND ordering_key = ?2 AND joined IS NOT NULL AND state <> 'Open';
