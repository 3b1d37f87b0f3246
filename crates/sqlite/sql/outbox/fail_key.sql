-- Everything that waits behind a dead message of the key dies with it.
UPDATE /*p*/outbox_waiting
SET state = 'Failed', reason = 'key-failed', last_error = ?3, next_attempt_at = NULL, finished_at = ?4,
    announced = 0, holds_key = 0
WHERE lane_id = ?1 AND ordering_key = ?2 AND holds_key = 1 AND state = 'Pending'
  AND (joined, seq) > (SELECT d.joined, d.seq FROM /*p*/outbox_waiting AS d WHERE d.seq = ?5);
