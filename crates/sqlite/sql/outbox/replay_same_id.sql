-- Attempts start anew, the replay number grows, the place among the waiting messages of the key stays.
UPDATE /*p*/outbox_waiting
SET state = 'Pending', attempts = 0, replay = replay + 1, expires_at = ?2, finished_at = NULL, reason = NULL,
    announced = NULL, joined = coalesce(joined, ?3), holds_key = iif(ordering_key IS NULL, 0, 1),
    next_attempt_at = ?4
WHERE seq = ?1 AND finished_at = ?5 AND reason IS NOT NULL AND replayed_as IS NULL
RETURNING lane_id, ordering_key;
