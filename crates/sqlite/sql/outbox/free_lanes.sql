-- The owner is dead: its lanes need not wait for the end of their leases.
UPDATE /*p*/outbox_lanes SET lease_until = ?3 WHERE source = ?1 AND lease_owner = ?2;
