-- The message that has waited longest outside of the log, of those that are part of their key.
SELECT max(created_at, coalesce(due_at, created_at))
FROM /*p*/outbox_waiting
WHERE lane_id = ?1 AND state = 'Pending' AND joined IS NOT NULL
ORDER BY seq
LIMIT 1;
