-- One message, from where it stands now.
SELECT
    seq, message_id, source, destination, endpoint, message_type, content_type, ordering_key,
    created_at, due_at, octet_length(payload), state, attempts, next_attempt_at, last_error, 0,
    correlation_id, headers, expires_at, finished_at, last_attempt_at, reason, replay, replayed_as, holds_key, payload
FROM /*p*/outbox_waiting
WHERE seq = ?1
UNION ALL
SELECT
    l.seq, l.message_id, l.source, l.destination, l.endpoint, l.message_type, l.content_type, l.ordering_key,
    l.created_at, l.due_at, octet_length(l.payload), NULL, 0, NULL, NULL, 0,
    l.correlation_id, l.headers, l.expires_at, NULL, NULL, NULL, 0, NULL, 0, l.payload
FROM /*p*/outbox_log AS l
WHERE l.seq = ?1 AND NOT EXISTS (SELECT 1 FROM /*p*/outbox_waiting AS w WHERE w.seq = l.seq);
