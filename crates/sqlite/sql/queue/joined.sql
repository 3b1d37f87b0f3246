SELECT ordering_key, joined FROM /*p*/inbox_queue WHERE item_id = ?1;
