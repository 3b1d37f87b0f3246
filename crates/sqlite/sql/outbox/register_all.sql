-- A relay can reach every destination of its source.
UPDATE /*p*/outbox_lanes SET registered_at = max(registered_at, ?2), retries_max = ?3 WHERE source = ?1;
