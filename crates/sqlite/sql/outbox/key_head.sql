-- The message that all others of the key wait for.
SELECT seq, state FROM /*p*/outbox_waiting
WHERE lane_id = ?1 AND ordering_key = ?2 AND holds_key = 1
ORDER BY joined, seq
LIMIT 1;
