-- The lanes an owner holds.
SELECT lane_id, destination, lease_token, cursor, registered_at, paused_at IS NOT NULL, inbox
FROM /*p*/outbox_lanes
WHERE source = ?1 AND lease_owner = ?2
ORDER BY lane_id;
