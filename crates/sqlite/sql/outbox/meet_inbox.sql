-- One that was not known before is no change.
UPDATE /*p*/outbox_lanes
SET inbox = ?3,
    inbox_changed_at = iif(inbox <> ?3, ?4, inbox_changed_at),
    inbox_changes = inbox_changes + coalesce(inbox <> ?3, 0)
WHERE lane_id = ?1 AND lease_token = ?2
RETURNING inbox_changed_at IS ?4;
