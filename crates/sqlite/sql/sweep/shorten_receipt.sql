-- What a batch covers is trimmed from its front, a part at a time.
UPDATE /*p*/outbox_receipts SET first_seq = ?3 WHERE lane_id = ?1 AND last_seq = ?2;
