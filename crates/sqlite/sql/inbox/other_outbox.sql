SELECT 1 FROM /*p*/inbox_outboxes WHERE peer_id = ?1 AND outbox <> ?2 LIMIT 1;
