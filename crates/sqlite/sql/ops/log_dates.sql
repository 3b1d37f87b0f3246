-- The dates of the next rows: one of them may be wrong.
SELECT seq, created_at FROM /*p*/outbox_log WHERE seq >= ?1 ORDER BY seq LIMIT 3;
