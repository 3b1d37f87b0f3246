UPDATE /*p*/inbox_queue SET ready_at = ?2 WHERE item_id = ?1 AND state = 'Open' AND ready_at IS NULL;
