SELECT lane_id, source, destination, cursor FROM /*p*/outbox_lanes;
