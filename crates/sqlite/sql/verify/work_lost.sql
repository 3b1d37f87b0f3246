-- A message that was stored and acknowledged, and that is not in the queue, is handled by nobody.
SELECT 'message ' || i.message_id FROM /*p*/inbox AS i
WHERE i.status = 'Processing' AND i.claimed_at IS NULL
    AND NOT EXISTS (SELECT 1 FROM /*p*/inbox_queue AS q WHERE q.item_id = i.row_id);
