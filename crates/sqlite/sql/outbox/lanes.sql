SELECT lane_id, source, destination, lease_owner, held_since, held_error, next_probe_at, sent, failed, expired
FROM /*p*/outbox_lanes
ORDER BY source, destination;
