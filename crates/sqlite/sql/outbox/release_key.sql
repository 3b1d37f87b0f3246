-- The dead messages of a key no longer hold it.
UPDATE /*p*/outbox_waiting SET holds_key = 0
WHERE lane_id = (SELECT lane_id FROM /*p*/outbox_lanes WHERE source = ?1 AND destination = ?2)
  AND ordering_key = ?3 AND holds_key = 1 AND finished_at IS NOT NULL
RETURNING lane_id;
