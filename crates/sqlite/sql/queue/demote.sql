UPDATE /*p*/inbox_queue SET ready_at = NULL WHERE item_id = ?1 AND lease_until IS NULL;
