-- It has come due, and others of its ordering key were before it.
UPDATE /*p*/inbox_queue SET joined = ?2, ready_at = NULL, scheduled = 0 WHERE item_id = ?1;
