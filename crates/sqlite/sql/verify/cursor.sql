-- A cursor beyond the end of the log would pass over what is enqueued next.
SELECT 'lane ' || lane_id || ', cursor ' || cursor FROM /*p*/outbox_lanes
WHERE cursor > coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0);
