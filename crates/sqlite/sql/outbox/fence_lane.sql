-- The fence of outcomes of waiting rows, which move no cursor.
UPDATE /*p*/outbox_lanes
SET sent = sent + ?3, failed = failed + ?4, expired = expired + ?5
WHERE lane_id = ?1 AND lease_token = ?2;
