-- The oldest acknowledged batch of a lane, if it is old enough.
SELECT first_seq, last_seq FROM /*p*/outbox_receipts
WHERE lane_id = ?1 AND sent_at <= ?2
ORDER BY last_seq
LIMIT 1;
