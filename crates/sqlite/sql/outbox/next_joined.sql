-- A counter, not a clock: the order within a key must survive a clock that steps back.
UPDATE /*p*/outbox_lanes SET next_joined = next_joined + 1 WHERE lane_id = ?1
RETURNING next_joined - 1;
