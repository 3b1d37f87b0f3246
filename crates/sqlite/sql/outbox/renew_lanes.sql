-- Keeps what the owner holds. Also when it has just expired: nobody took it, so the token is still the newest.
UPDATE /*p*/outbox_lanes SET lease_until = ?3
WHERE source = ?1 AND lease_owner = ?2;
