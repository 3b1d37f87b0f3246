DELETE FROM /*p*/inbox WHERE peer_id = ?1 AND message_id = ?2 AND claimed_at IS NOT NULL;
