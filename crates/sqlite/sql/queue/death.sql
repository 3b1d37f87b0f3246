-- A dead letter that is listed, if it has not died again since.
SELECT i.peer_id, q.item_id IS NOT NULL
FROM /*p*/inbox AS i
JOIN /*p*/inbox_peers AS p ON p.peer_id = i.peer_id
LEFT JOIN /*p*/inbox_queue AS q ON q.item_id = i.row_id
WHERE i.row_id = ?1 AND i.processed_at = ?2 AND i.status IN ('Dead', 'Expired') AND i.handler IS NOT NULL
    AND p.consumer = ?3;
