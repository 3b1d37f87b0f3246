SELECT EXISTS (SELECT 1 FROM /*p*/outbox_waiting WHERE lane_id = ?1 AND holds_key = 1);
