DELETE FROM /*p*/inbox_queue WHERE item_id = ?1 RETURNING ordering_key;
