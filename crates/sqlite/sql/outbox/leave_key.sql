-- A message that is not due after all: a clock that was ahead had made it a part of its key.
UPDATE /*p*/outbox_waiting SET joined = NULL, holds_key = 0, next_attempt_at = NULL
WHERE seq = ?1 AND lane_id = ?2 AND state = 'Pending';
