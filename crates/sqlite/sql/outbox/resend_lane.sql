-- The next lane that is meant.
SELECT lane_id, source, destination, cursor FROM /*p*/outbox_lanes
WHERE lane_id >= ?1 AND (?2 IS NULL OR source = ?2) AND (?3 IS NULL OR destination = ?3)
ORDER BY lane_id
LIMIT 1;
