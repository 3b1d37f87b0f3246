-- What a clock that was ahead has dated counts from now on: of a lane, as many as one look takes, from its front.
UPDATE /*p*/outbox_receipts SET sent_at = ?2
WHERE lane_id = ?1 AND sent_at > ?2 AND last_seq IN (
    SELECT last_seq FROM /*p*/outbox_receipts WHERE lane_id = ?1 ORDER BY last_seq LIMIT ?3);
