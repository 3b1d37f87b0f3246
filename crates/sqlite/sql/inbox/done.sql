-- The guard: the last statement of every handled message, and it must touch exactly one row.
UPDATE /*p*/inbox SET status = 'Done', processed_at = ?3, response_type = ?4, response = ?5
WHERE peer_id = ?1 AND message_id = ?2 AND status = 'Processing';
