-- A receipt is for messages that the cursor of its lane has passed.
SELECT 'lane ' || r.lane_id || ', places ' || r.first_seq || ' to ' || r.last_seq FROM /*p*/outbox_receipts AS r
LEFT JOIN /*p*/outbox_lanes AS n ON n.lane_id = r.lane_id
WHERE n.lane_id IS NULL OR r.last_seq > n.cursor OR r.first_seq > r.last_seq OR r.messages < 0;
