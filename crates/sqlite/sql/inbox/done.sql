-- The guard of a message that is handled again after it was rejected: the last statement, which must touch exactly one
-- row. It is found by the place the claim gave it; key and status say that it is still the same row.
UPDATE /*p*/inbox SET status = 'Done', processed_at = ?3, response_type = ?4, response = ?5
WHERE row_id = ?6 AND peer_id = ?1 AND message_id = ?2 AND status = 'Processing';
