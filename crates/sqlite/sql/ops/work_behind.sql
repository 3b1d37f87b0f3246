-- The head of a key, and how many wait behind it, counted up to a bound.
SELECT
    (SELECT message_id FROM /*p*/inbox WHERE row_id = (SELECT item_id FROM /*p*/inbox_queue
     WHERE peer_id = ?1 AND ordering_key = ?2 AND joined IS NOT NULL
     ORDER BY joined LIMIT 1)),
    (SELECT count(*) FROM (SELECT 1 FROM /*p*/inbox_queue
     WHERE peer_id = ?1 AND ordering_key = ?2 AND joined IS NOT NULL AND reason IS NULL
     LIMIT ?3));
