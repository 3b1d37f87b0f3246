-- The fence: what a lease is for, as long as it is current.
SELECT q.attempts, q.peer_id, q.ordering_key, i.available_at
FROM /*p*/inbox_queue AS q
JOIN /*p*/inbox AS i ON i.row_id = q.item_id
WHERE q.item_id = ?1 AND q.lease_token = ?2 AND q.lease_owner = ?3 AND i.message_id = ?4;
