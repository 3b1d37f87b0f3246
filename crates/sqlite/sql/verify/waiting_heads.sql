-- Of the waiting messages of a key only the head has a next attempt, and a head that is pending has one.
SELECT 'lane ' || lane_id || ', key ' || ordering_key FROM (
    SELECT lane_id, ordering_key, state, next_attempt_at,
        row_number() OVER (PARTITION BY lane_id, ordering_key ORDER BY joined, seq) AS place
    FROM /*p*/outbox_waiting
    WHERE holds_key = 1)
WHERE (place = 1 AND state = 'Pending' AND next_attempt_at IS NULL) OR (place > 1 AND next_attempt_at IS NOT NULL);
