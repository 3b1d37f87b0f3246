-- The breaker, for people to see: since when, why, next try. While a lane is held, nothing of it is being sent.
UPDATE /*p*/outbox_lanes
SET held_since = iif(?3 IS NULL, NULL, coalesce(held_since, ?5)), held_error = ?3, next_probe_at = ?4,
    sending = iif(?3 IS NULL, sending, cursor)
WHERE lane_id = ?1 AND lease_token = ?2;
