SELECT lane_id FROM /*p*/outbox_lanes WHERE source = ?1 AND paused_at IS NOT NULL;
