SELECT peer_id, watermark FROM /*p*/inbox_peers WHERE consumer = ?1 AND source = ?2;
