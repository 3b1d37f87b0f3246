DELETE FROM /*p*/outbox_receipts WHERE lane_id = ?1 AND last_seq = ?2;
