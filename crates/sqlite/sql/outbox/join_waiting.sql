UPDATE /*p*/outbox_waiting
SET joined = ?2, holds_key = iif(ordering_key IS NULL, 0, 1), next_attempt_at = ?3
WHERE seq = ?1 AND joined IS NULL;
