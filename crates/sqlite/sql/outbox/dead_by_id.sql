-- The dead letters of one message id, without a scan.
SELECT seq, message_id, destination, endpoint, ordering_key, reason, last_error, attempts, finished_at, holds_key
FROM /*p*/outbox_waiting
WHERE message_id = ?1 AND reason IS NOT NULL AND replayed_as IS NULL
  AND (?2 IS NULL OR source = ?2)
  AND (?3 IS NULL OR destination = ?3)
  AND (?4 IS NULL OR endpoint = ?4)
  AND (?5 IS NULL OR reason = ?5);
