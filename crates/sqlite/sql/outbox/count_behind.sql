-- How many wait in a key, counted up to a bound.
SELECT count(*) FROM (
    SELECT 1 FROM /*p*/outbox_waiting
    WHERE lane_id = ?1 AND ordering_key = ?2 AND holds_key = 1 AND state = 'Pending'
    LIMIT ?3);
