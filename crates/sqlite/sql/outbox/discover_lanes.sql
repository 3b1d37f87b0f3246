-- Destinations in a part of the log that have no lane yet, with their first message.
SELECT l.destination, min(l.seq)
FROM /*p*/outbox_log AS l
WHERE l.seq > ?2 AND l.seq <= ?3 AND l.source = ?1
  AND NOT EXISTS (
    SELECT 1 FROM /*p*/outbox_lanes AS n WHERE n.source = l.source AND n.destination = l.destination)
GROUP BY l.destination;
