-- Counters only grow, and count at least what there are receipts for.
SELECT 'lane ' || lane_id FROM /*p*/outbox_lanes AS n
WHERE sent < 0 OR failed < 0 OR expired < 0 OR lease_token < 0
    OR sent < (SELECT coalesce(sum(messages), 0) FROM /*p*/outbox_receipts AS r WHERE r.lane_id = n.lane_id);
