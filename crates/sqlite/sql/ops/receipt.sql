-- When the batch with this message was acknowledged.
SELECT sent_at FROM /*p*/outbox_receipts
WHERE lane_id = ?1 AND last_seq >= ?2
ORDER BY last_seq
LIMIT 1;
