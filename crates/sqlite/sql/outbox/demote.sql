-- Messages of a key that are not its head wait for it.
UPDATE /*p*/outbox_waiting SET next_attempt_at = NULL
WHERE lane_id = ?1 AND ordering_key = ?2 AND holds_key = 1 AND seq <> ?3 AND next_attempt_at IS NOT NULL;
