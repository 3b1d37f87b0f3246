-- Open work that nothing holds and that is never ready is never done.
SELECT 'message ' || i.message_id FROM /*p*/inbox_queue AS q
JOIN /*p*/inbox AS i ON i.row_id = q.item_id
WHERE q.state = 'Open' AND q.joined IS NULL AND q.ready_at IS NULL;
