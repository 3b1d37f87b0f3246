-- The dead letters of one message id, without a scan. In log order, which is the order of the index.
SELECT seq, message_id, destination, endpoint, ordering_key, reason, last_error, attempts, finished_at, holds_key
FROM /*p*/outbox_waiting
WHERE message_id = ?1 AND seq > ?2 AND reason IS NOT NULL AND replayed_as IS NULL AND finished_at <= ?3
  AND (?4 IS NULL OR source = ?4)
  AND (?5 IS NULL OR destination = ?5)
  AND (?6 IS NULL OR endpoint = ?6)
  AND (?7 IS NULL OR reason = ?7)
ORDER BY seq
LIMIT ?8;
