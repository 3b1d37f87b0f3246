-- Those of one state outside of the log.
SELECT
    seq, message_id, source, destination, endpoint, message_type, content_type, ordering_key,
    created_at, due_at, octet_length(payload), state, attempts, next_attempt_at, last_error, 0
FROM /*p*/outbox_waiting
WHERE state = ?4 AND seq < ?1 AND seq > ?2
ORDER BY seq DESC
LIMIT ?3;
