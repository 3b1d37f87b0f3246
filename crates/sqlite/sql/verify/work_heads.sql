-- Of the open messages of a key only the head can be claimed, and it can.
SELECT 'peer ' || peer_id || ', key ' || ordering_key FROM (
    SELECT peer_id, ordering_key, state, ready_at,
        row_number() OVER (PARTITION BY peer_id, ordering_key ORDER BY joined) AS place
    FROM /*p*/inbox_queue
    WHERE joined IS NOT NULL)
WHERE (place = 1 AND state = 'Open' AND ready_at IS NULL) OR (place > 1 AND ready_at IS NOT NULL);
