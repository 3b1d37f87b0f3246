SELECT destination FROM /*p*/outbox_lanes WHERE lane_id = ?1;
