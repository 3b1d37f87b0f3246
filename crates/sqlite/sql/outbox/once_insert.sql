-- Claims a key; touches no row if it is taken.
INSERT INTO /*p*/outbox_once (source, once_key, message_id, created_at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO NOTHING;
