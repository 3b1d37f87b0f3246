UPDATE /*p*/inbox_peers SET watermark = max(watermark, ?2), size = size - ?3 WHERE peer_id = ?1;
