SELECT seq, message_id, destination, endpoint, ordering_key, reason, last_error, attempts, finished_at, holds_key
FROM /*p*/outbox_waiting
WHERE announced = 0 AND source = ?1 AND seq > ?2
ORDER BY seq
LIMIT ?3;
