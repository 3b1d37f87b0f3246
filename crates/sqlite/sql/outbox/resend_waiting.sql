-- The same for one that had to wait before it was sent.
UPDATE /*p*/outbox_waiting
SET state = 'Pending', attempts = 0, expires_at = max(expires_at, ?3), finished_at = NULL, joined = ?4,
    holds_key = ordering_key IS NOT NULL, next_attempt_at = ?5
WHERE seq = ?1 AND lane_id = ?2 AND state = 'Sent'
RETURNING lane_id, ordering_key;
