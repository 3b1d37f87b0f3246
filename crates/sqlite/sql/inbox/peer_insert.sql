INSERT INTO /*p*/inbox_peers (consumer, source) VALUES (?1, ?2) ON CONFLICT DO NOTHING;
