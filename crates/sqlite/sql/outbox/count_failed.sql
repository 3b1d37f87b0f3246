-- Messages that died because the head of their key did.
UPDATE /*p*/outbox_lanes SET failed = failed + ?2 WHERE lane_id = ?1;
