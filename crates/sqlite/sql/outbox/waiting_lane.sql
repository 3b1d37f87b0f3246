SELECT lane_id FROM /*p*/outbox_waiting WHERE seq = ?1;
