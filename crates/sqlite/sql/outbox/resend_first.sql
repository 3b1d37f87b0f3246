-- The first of those that had to wait before they were sent. The pluses keep SQLite from looking through all places or all that were sent.
SELECT min(+seq) FROM /*p*/outbox_waiting
WHERE (state = 'Sent' OR replayed_as IS NOT NULL) AND finished_at >= ?2 AND +state = 'Sent' AND lane_id = ?1;
