-- Nobody looks at what waits in a lane that does not exist.
SELECT 'message ' || w.message_id FROM /*p*/outbox_waiting AS w
LEFT JOIN /*p*/outbox_lanes AS n ON n.lane_id = w.lane_id
WHERE n.lane_id IS NULL;
