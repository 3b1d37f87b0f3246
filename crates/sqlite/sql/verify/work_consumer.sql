-- Workers look for work by their consumer's name.
SELECT 'item ' || q.item_id FROM /*p*/inbox_queue AS q
LEFT JOIN /*p*/inbox_peers AS p ON p.peer_id = q.peer_id
WHERE p.consumer IS NOT q.consumer;
