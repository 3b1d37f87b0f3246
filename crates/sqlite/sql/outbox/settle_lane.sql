-- The fence of every settlement: touches no row if the lease is not current or the cursor would move back.
UPDATE /*p*/outbox_lanes
SET cursor = ?3, sending = max(?4, ?3), sent = sent + ?5, failed = failed + ?6, expired = expired + ?7,
    passed = passed + ?8
WHERE lane_id = ?1 AND lease_token = ?2 AND cursor <= ?3;
