-- Leases that are over, or end so late that a clock must have jumped.
SELECT item_id, attempts, peer_id, ordering_key FROM /*p*/inbox_queue
WHERE consumer = ?1 AND lease_until < ?2
UNION ALL
SELECT item_id, attempts, peer_id, ordering_key FROM /*p*/inbox_queue
WHERE consumer = ?1 AND lease_until > ?3
LIMIT ?4;
