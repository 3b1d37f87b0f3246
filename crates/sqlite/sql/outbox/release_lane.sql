UPDATE /*p*/outbox_lanes SET lease_owner = NULL, lease_until = 0, sending = cursor
WHERE lane_id = ?1 AND lease_token = ?2;
