-- A pending message that nothing holds and that has no next attempt is never sent.
SELECT 'message ' || message_id FROM /*p*/outbox_waiting
WHERE state = 'Pending' AND joined IS NOT NULL AND holds_key = 0 AND next_attempt_at IS NULL;
