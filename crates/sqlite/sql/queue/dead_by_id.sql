-- The same for one id, of whichever source.
SELECT i.row_id, p.source, i.message_id, i.endpoint, q.ordering_key, q.reason, i.error, coalesce(q.attempts, 0),
    i.processed_at, q.joined IS NOT NULL
FROM /*p*/inbox AS i
JOIN /*p*/inbox_peers AS p ON p.peer_id = i.peer_id
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id
WHERE p.consumer = ?1 AND i.message_id = ?2 AND i.status IN ('Dead', 'Expired') AND i.handler IS NOT NULL
    AND (?3 IS NULL OR p.source = ?3) AND (?4 IS NULL OR i.endpoint = ?4) AND (?5 IS NULL OR coalesce(q.reason, 'rejected') = ?5)
    AND (i.processed_at, i.row_id) > (?7, ?8)
    AND i.processed_at < ?9
ORDER BY i.processed_at, i.row_id
LIMIT ?6;
