UPDATE /*p*/inbox_queue
SET lease_owner = ?2, lease_token = lease_token + 1, lease_until = ?3, ready_at = ?3, scheduled = 0, attempts = ?4,
    joined = ?5, last_error = coalesce(?6, last_error)
WHERE item_id = ?1;
