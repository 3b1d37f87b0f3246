SELECT source, destination, trimmed_at FROM /*p*/outbox_lanes
WHERE trimmed_at >= ?1 AND (?2 IS NULL OR source = ?2) AND (?3 IS NULL OR destination = ?3)
ORDER BY lane_id;
