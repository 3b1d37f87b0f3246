-- When something in the lane comes due next.
SELECT min(at) FROM (
    SELECT min(next_attempt_at) AS at FROM /*p*/outbox_waiting
    WHERE lane_id = ?1 AND next_attempt_at IS NOT NULL
    UNION ALL
    SELECT min(due_at) FROM /*p*/outbox_waiting WHERE lane_id = ?1 AND state = 'Pending' AND joined IS NULL
    UNION ALL
    SELECT min(expires_at) FROM /*p*/outbox_waiting WHERE lane_id = ?1 AND state = 'Pending');
