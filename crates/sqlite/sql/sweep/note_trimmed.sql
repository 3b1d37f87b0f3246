-- Until when a resend has gaps.
UPDATE /*p*/outbox_lanes SET trimmed_at = max(coalesce(trimmed_at, ?2), ?2) WHERE lane_id = ?1;
