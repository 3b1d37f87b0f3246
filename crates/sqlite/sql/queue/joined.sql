SELECT ordering_key, joined, attempts FROM /*p*/inbox_queue WHERE item_id = ?1;
