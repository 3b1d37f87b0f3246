-- Scheduled messages that have come due, in the order in which they join their keys.
SELECT seq, ordering_key, due_at FROM /*p*/outbox_waiting
WHERE lane_id = ?1 AND state = 'Pending' AND joined IS NULL AND due_at <= ?2
ORDER BY due_at, seq
LIMIT ?3;
