-- One message into the log.
INSERT INTO /*p*/outbox_log (
    message_id, source, destination, endpoint, message_type, payload, content_type,
    correlation_id, ordering_key, headers, created_at, due_at, expires_at
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13);
