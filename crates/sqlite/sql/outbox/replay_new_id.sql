-- A copy at the end of the log under a new id and with a new date.
INSERT INTO /*p*/outbox_log (
    message_id, source, destination, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at, expires_at
)
SELECT
    ?2, source, destination, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, ?3, ?4
FROM /*p*/outbox_waiting
WHERE seq = ?1 AND finished_at = ?5 AND reason IS NOT NULL AND replayed_as IS NULL;
