-- Messages whose next attempt lies further ahead than any policy allows: a clock has jumped.
SELECT
    seq, source, destination, message_id, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at, due_at, expires_at, replay, attempts, joined,
    last_attempt_at IS NOT NULL
FROM /*p*/outbox_waiting
WHERE lane_id = ?1 AND next_attempt_at IS NOT NULL AND next_attempt_at > ?2
LIMIT ?3;
