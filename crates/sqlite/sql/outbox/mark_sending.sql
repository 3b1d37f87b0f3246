UPDATE /*p*/outbox_lanes SET sending = max(sending, ?3) WHERE lane_id = ?1 AND lease_token = ?2;
