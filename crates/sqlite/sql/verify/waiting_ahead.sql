-- What waits was settled, so the cursor has passed it; otherwise it would be read and sent once more.
SELECT 'message ' || w.message_id FROM /*p*/outbox_waiting AS w
JOIN /*p*/outbox_lanes AS n ON n.lane_id = w.lane_id
WHERE w.seq > n.cursor;
