-- Open work that nothing holds and that is never ready is never done.
SELECT 'item ' || item_id FROM /*p*/inbox_queue WHERE state = 'Open' AND joined IS NULL AND ready_at IS NULL;
