-- Keys of the queue in which a dead message holds its place.
SELECT peer_id, ordering_key
FROM /*p*/inbox_queue
WHERE joined IS NOT NULL AND reason IS NOT NULL
GROUP BY peer_id, ordering_key
LIMIT ?1;
