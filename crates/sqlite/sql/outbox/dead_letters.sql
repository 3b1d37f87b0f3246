-- Dead letters that have not been replayed, oldest death first. Every filter is optional.
SELECT seq, message_id, destination, endpoint, ordering_key, reason, last_error, attempts, finished_at, holds_key
FROM /*p*/outbox_waiting
WHERE reason IS NOT NULL AND replayed_as IS NULL AND (finished_at, seq) > (?1, ?2) AND finished_at <= ?3
  AND (?4 IS NULL OR source = ?4)
  AND (?5 IS NULL OR destination = ?5)
  AND (?6 IS NULL OR endpoint = ?6)
  AND (?7 IS NULL OR reason = ?7)
ORDER BY finished_at, seq
LIMIT ?8;
