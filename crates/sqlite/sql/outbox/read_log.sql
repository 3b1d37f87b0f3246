-- The next rows of the log, in commit order: SQLite has one writer, so seq order is commit order.
SELECT
    seq, source, destination, message_id, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at, due_at, expires_at
FROM /*p*/outbox_log
WHERE seq > ?1 AND seq <= ?2
ORDER BY seq
LIMIT ?3;
