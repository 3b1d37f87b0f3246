-- Dead letters of the inbox, oldest death first. Rejections in the transaction are the sender's, and have no handler.
SELECT i.row_id, i.peer_id, i.message_id, i.endpoint, q.ordering_key, q.reason, i.error, coalesce(q.attempts, 0),
    i.processed_at, q.joined IS NOT NULL
FROM /*p*/inbox AS i
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id
WHERE i.status IN ('Dead', 'Expired') AND i.handler IS NOT NULL AND (i.processed_at, i.row_id) > (?1, ?2)
ORDER BY i.processed_at, i.row_id
LIMIT ?3;
