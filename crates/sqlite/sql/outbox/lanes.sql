SELECT lane_id, source, destination, lease_owner, held_since, held_error, next_probe_at, sent, failed, expired,
    retrying, scheduled, held, dead, paused_at, paused_by, paused_reason, cursor, sending, passed,
    inbox, inbox_changed_at, inbox_changes
FROM /*p*/outbox_lanes
ORDER BY source, destination;
