-- The first message of a lane behind its cursor, if it is near.
SELECT max(created_at, coalesce(due_at, created_at))
FROM /*p*/outbox_log
WHERE seq > ?1 AND seq <= ?2 AND source = ?3 AND destination = ?4
ORDER BY seq
LIMIT 1;
