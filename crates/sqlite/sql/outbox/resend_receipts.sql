-- Receipts from the newest back: how far depends on what is asked for, not on what is kept.
SELECT last_seq, first_seq, sent_at FROM /*p*/outbox_receipts
WHERE lane_id = ?1 AND last_seq < ?2
ORDER BY last_seq DESC
LIMIT ?3;
