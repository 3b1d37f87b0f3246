-- Takes a lane that is free or whose lease is over, with a fresh token. A lease that ends implausibly late was
-- written by a clock that has jumped since, and counts as over.
UPDATE /*p*/outbox_lanes
SET lease_owner = ?3, lease_token = lease_token + 1, lease_until = ?4,
    held_since = NULL, held_error = NULL, next_probe_at = NULL, sending = cursor
WHERE source = ?1 AND destination = ?2 AND (lease_owner IS NULL OR lease_until <= ?5 OR lease_until > ?6);
