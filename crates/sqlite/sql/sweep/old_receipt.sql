-- The oldest acknowledged batch of a lane. Whether it is old enough is for the caller to say: a condition here
-- would make SQLite look at every receipt when none is.
SELECT first_seq, last_seq, sent_at FROM /*p*/outbox_receipts
WHERE lane_id = ?1
ORDER BY last_seq
LIMIT 1;
