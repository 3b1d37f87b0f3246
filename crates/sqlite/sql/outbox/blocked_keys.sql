-- Keys whose head is dead.
SELECT n.source, n.destination, w.ordering_key, min(w.seq), w.lane_id
FROM /*p*/outbox_waiting AS w
JOIN /*p*/outbox_lanes AS n ON n.lane_id = w.lane_id
WHERE w.holds_key = 1 AND w.finished_at IS NOT NULL
GROUP BY w.lane_id, w.ordering_key
LIMIT ?1;
