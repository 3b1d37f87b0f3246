-- Workers look for work by their consumer's name.
SELECT 'message ' || i.message_id FROM /*p*/inbox_queue AS q
JOIN /*p*/inbox AS i ON i.row_id = q.item_id
LEFT JOIN /*p*/inbox_peers AS p ON p.peer_id = q.peer_id
WHERE p.consumer IS NOT q.consumer;
