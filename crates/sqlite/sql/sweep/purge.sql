-- Final rows at or below the watermark. Dead letters stay until somebody has looked at them.
DELETE FROM /*p*/inbox WHERE peer_id = ?1 AND available_at <= ?2 AND status = 'Done';
