-- The first of those that had to wait before they were sent. The plus keeps SQLite from looking through all places.
SELECT min(+seq) FROM /*p*/outbox_waiting
WHERE (state = 'Sent' OR replayed_as IS NOT NULL) AND finished_at >= ?2 AND state = 'Sent' AND lane_id = ?1;
