-- Work that is open although its message is done would be done again.
SELECT 'message ' || i.message_id FROM /*p*/inbox_queue AS q
JOIN /*p*/inbox AS i ON i.row_id = q.item_id
WHERE q.state = 'Open' AND i.status = 'Done';
