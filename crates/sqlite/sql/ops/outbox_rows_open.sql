-- The same without what is known to be finished beside the log. Nothing waits of what the log has not settled.
SELECT
    seq, message_id, source, destination, endpoint, message_type, content_type, ordering_key,
    created_at, due_at, octet_length(payload), NULL, 0, NULL, NULL, 0
FROM /*p*/outbox_log
WHERE seq < ?1 AND seq > ?2
UNION ALL
SELECT
    seq, message_id, source, destination, endpoint, message_type, content_type, ordering_key,
    created_at, due_at, octet_length(payload), state, attempts, next_attempt_at, last_error, 0
FROM /*p*/outbox_waiting
WHERE state = 'Pending' AND seq < ?1 AND seq > ?2
ORDER BY 1 DESC
LIMIT ?3;
