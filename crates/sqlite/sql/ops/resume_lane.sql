UPDATE /*p*/outbox_lanes SET paused_at = NULL, paused_by = NULL, paused_reason = NULL
WHERE source = ?1 AND destination = ?2 AND paused_at IS NOT NULL;
