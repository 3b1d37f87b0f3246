-- Dead letters, oldest death first.
SELECT seq, message_id, destination, endpoint, ordering_key, reason, last_error, attempts, finished_at, holds_key, source
FROM /*p*/outbox_waiting
WHERE reason IS NOT NULL AND replayed_as IS NULL AND (finished_at, seq) > (?1, ?2)
ORDER BY finished_at, seq
LIMIT ?3;
