INSERT INTO /*p*/inbox_outboxes (peer_id, outbox, met_at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING;
