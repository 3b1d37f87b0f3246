-- A sent message waits again, as one that has failed would. Its id and its replay number stay.
INSERT INTO /*p*/outbox_waiting (
    seq, lane_id, message_id, source, destination, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at, due_at, expires_at, state, joined, holds_key, next_attempt_at
)
SELECT
    seq, ?2, message_id, source, destination, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at, due_at, max(coalesce(expires_at, ?3), ?3),
    'Pending', ?4, ordering_key IS NOT NULL, ?5
FROM /*p*/outbox_log
WHERE seq = ?1
ON CONFLICT DO NOTHING
RETURNING lane_id, ordering_key;
