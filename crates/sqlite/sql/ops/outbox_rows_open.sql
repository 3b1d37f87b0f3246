-- The same without what is known to be finished beside the log.
SELECT
    l.seq, l.message_id, l.source, l.destination, l.endpoint, l.message_type, l.content_type, l.ordering_key,
    l.created_at, l.due_at, octet_length(l.payload), NULL, 0, NULL, NULL,
    EXISTS (SELECT 1 FROM /*p*/outbox_waiting AS w WHERE w.seq = l.seq)
FROM /*p*/outbox_log AS l
WHERE l.seq < ?1 AND l.seq > ?2
UNION ALL
SELECT
    seq, message_id, source, destination, endpoint, message_type, content_type, ordering_key,
    created_at, due_at, octet_length(payload), state, attempts, next_attempt_at, last_error, 0
FROM /*p*/outbox_waiting
WHERE state = 'Pending' AND seq < ?1 AND seq > ?2
ORDER BY 1 DESC
LIMIT ?3;
