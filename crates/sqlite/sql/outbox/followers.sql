-- The messages right behind the head of a key, in order.
SELECT
    seq, source, destination, message_id, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at, due_at, expires_at, replay, attempts, joined, state
FROM /*p*/outbox_waiting
WHERE lane_id = ?1 AND ordering_key = ?2 AND holds_key = 1 AND (joined, seq) > (?3, ?4)
ORDER BY joined, seq
LIMIT ?5;
