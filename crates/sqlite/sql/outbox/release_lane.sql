UPDATE /*p*/outbox_lanes SET lease_owner = NULL, lease_until = 0, sending = cursor,
    held_since = NULL, held_error = NULL, next_probe_at = NULL
WHERE lane_id = ?1 AND lease_token = ?2;
