-- Messages past their time to live, wherever in their key they stand.
SELECT
    seq, source, destination, message_id, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at, due_at, expires_at, replay, attempts, joined,
    last_attempt_at IS NOT NULL
FROM /*p*/outbox_waiting
WHERE lane_id = ?1 AND state = 'Pending' AND expires_at <= ?2
ORDER BY expires_at
LIMIT ?3;
