-- The new head of a key may be tried at once.
UPDATE /*p*/outbox_waiting SET next_attempt_at = ?2
WHERE seq = ?1 AND state = 'Pending' AND next_attempt_at IS NULL;
