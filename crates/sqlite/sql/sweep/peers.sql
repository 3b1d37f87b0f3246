SELECT peer_id, newest_available, watermark FROM /*p*/inbox_peers;
