-- Dead letters: what was queued, and what was claimed before it failed. Rejections in the transaction are the
-- sender's, and have no handler. The cross join says where to begin: from the peers, SQLite would look at everything they ever sent.
SELECT i.row_id, p.source, i.message_id, i.endpoint, q.ordering_key, q.reason, i.error, coalesce(q.attempts, 0),
    i.processed_at, q.joined IS NOT NULL
FROM /*p*/inbox AS i
CROSS JOIN /*p*/inbox_peers AS p ON p.peer_id = i.peer_id
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id
WHERE i.status IN ('Dead', 'Expired') AND i.handler IS NOT NULL AND (i.processed_at, i.row_id) > (?1, ?2)
    AND p.consumer = ?3
    AND (?4 IS NULL OR p.source = ?4) AND (?5 IS NULL OR i.endpoint = ?5) AND (?6 IS NULL OR coalesce(q.reason, 'rejected') = ?6)
    AND i.processed_at < ?8
ORDER BY i.processed_at, i.row_id
LIMIT ?7;
