-- Nothing is sent to the destination until it is resumed. A pause that is there stays.
INSERT INTO /*p*/outbox_lanes (source, destination, registered_at, paused_at, paused_by, paused_reason)
VALUES (?1, ?2, ?3, ?3, ?4, ?5)
ON CONFLICT (source, destination) DO UPDATE
SET paused_at = excluded.paused_at, paused_by = excluded.paused_by, paused_reason = excluded.paused_reason
WHERE paused_at IS NULL;
