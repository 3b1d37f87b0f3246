UPDATE /*p*/inbox_queue
SET lease_owner = NULL, lease_until = NULL, ready_at = ?2, scheduled = ?3, attempts = ?4,
    last_error = coalesce(?5, last_error), last_attempt_at = ?6
WHERE item_id = ?1;
