INSERT INTO /*p*/outbox_receipts (lane_id, last_seq, first_seq, sent_at, messages) VALUES (?1, ?2, ?3, ?4, ?5);
