-- An outcome of a waiting row. Final states stay: only what is pending changes.
UPDATE /*p*/outbox_waiting
SET state = ?3, attempts = ?4, joined = coalesce(joined, ?5), holds_key = iif(ordering_key IS NULL, 0, ?6),
    next_attempt_at = ?7, last_attempt_at = coalesce(?8, last_attempt_at), last_error = coalesce(?9, last_error),
    reason = ?10, finished_at = ?11, announced = iif(?10 IS NULL, NULL, 0)
WHERE seq = ?1 AND lane_id = ?2 AND state = 'Pending';
