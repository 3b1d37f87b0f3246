-- Copies a log row as it stands, bytes intact even when it cannot be decoded.
INSERT INTO /*p*/outbox_waiting (
    seq, lane_id, message_id, source, destination, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at, due_at, expires_at,
    state, attempts, joined, holds_key, next_attempt_at, last_attempt_at, last_error, reason, finished_at, announced
)
SELECT
    seq, ?2, message_id, source, destination, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at,
    -- What is scheduled needs a due date to be found by, whoever wrote the row.
    iif(?6 IS NULL, max(created_at, coalesce(due_at, created_at)), due_at),
    -- Bounded, so that a date at the end of time cannot overflow.
    coalesce(expires_at, min(max(created_at, coalesce(due_at, created_at)), 9223372036854775807 - ?3) + ?3),
    ?4, ?5, ?6, iif(ordering_key IS NULL, 0, ?7), ?8, ?9, ?10, ?11, ?12, iif(?11 IS NULL, NULL, 0)
FROM /*p*/outbox_log
WHERE seq = ?1;
