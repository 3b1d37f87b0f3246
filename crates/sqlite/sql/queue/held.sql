-- The fence: what a lease is for, as long as it is current.
SELECT attempts, peer_id, ordering_key FROM /*p*/inbox_queue
WHERE item_id = ?1 AND lease_token = ?2 AND lease_owner = ?3 AND message_id = ?4;
