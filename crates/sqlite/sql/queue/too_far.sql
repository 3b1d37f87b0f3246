-- Nothing waits longer than the longest back-off, unless somebody has asked for it: a clock must have jumped.
UPDATE /*p*/inbox_queue SET ready_at = ?2
WHERE item_id IN (
    SELECT item_id FROM /*p*/inbox_queue
    WHERE consumer = ?1 AND scheduled = 0 AND ready_at > ?3 AND lease_until IS NULL
    LIMIT ?4);
