-- Keeps what the owner holds. Also when it has just expired: nobody took it, so the token is still the newest.
-- A registration that is dated ahead was written by a clock that has jumped since: it counts from now on (S13).
UPDATE /*p*/outbox_lanes
SET lease_until = iif(lease_owner = ?2, ?3, lease_until), registered_at = min(registered_at, ?4)
WHERE source = ?1 AND (lease_owner = ?2 OR registered_at > ?4);
