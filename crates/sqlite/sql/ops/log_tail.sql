-- The newest rows of the log, newest first.
SELECT seq, source, destination, max(created_at, coalesce(due_at, created_at))
FROM /*p*/outbox_log
ORDER BY seq DESC
LIMIT ?1;
