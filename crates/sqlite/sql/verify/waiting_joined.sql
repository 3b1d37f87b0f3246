-- The next message that fails would overtake one that waits already.
SELECT 'message ' || w.message_id FROM /*p*/outbox_waiting AS w
JOIN /*p*/outbox_lanes AS n ON n.lane_id = w.lane_id
WHERE w.joined >= n.next_joined;
