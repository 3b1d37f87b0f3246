UPDATE /*p*/inbox_queue
SET state = ?2, lease_owner = NULL, lease_until = NULL, ready_at = NULL, scheduled = 0, attempts = ?3, last_error = ?4,
    reason = ?5, last_attempt_at = ?6, joined = iif(?7, joined, NULL)
WHERE item_id = ?1;
