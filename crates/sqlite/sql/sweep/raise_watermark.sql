UPDATE /*p*/inbox_peers SET watermark = max(watermark, ?2) WHERE peer_id = ?1;
