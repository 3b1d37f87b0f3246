SELECT EXISTS (
    SELECT 1 FROM /*p*/outbox_waiting WHERE lane_id = ?1 AND ordering_key = ?2 AND holds_key = 1);
