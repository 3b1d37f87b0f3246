-- Takes lanes whose destination nobody has registered for the grace period: their messages must fail visibly.
UPDATE /*p*/outbox_lanes
SET lease_owner = ?2, lease_token = lease_token + 1, lease_until = ?3,
    held_since = NULL, held_error = NULL, next_probe_at = NULL, sending = cursor
WHERE source = ?1 AND registered_at <= ?4 AND (lease_owner IS NULL OR lease_until <= ?5 OR lease_until > ?6);
