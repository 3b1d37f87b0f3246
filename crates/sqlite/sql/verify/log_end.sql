-- A place that is given again lies behind somebody's cursor, and what stands there would never be sent.
SELECT 'place ' || seq FROM (
    SELECT max(seq) AS seq FROM /*p*/outbox_log
    UNION ALL
    SELECT max(seq) FROM /*p*/outbox_waiting)
WHERE seq > coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0);
