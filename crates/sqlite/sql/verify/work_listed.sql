-- Dead letters are listed by their rows in the inbox, as long as these have a handler.
SELECT 'message ' || i.message_id FROM /*p*/inbox_queue AS q
JOIN /*p*/inbox AS i ON i.row_id = q.item_id
WHERE q.state <> 'Open' AND (i.handler IS NULL OR i.status NOT IN ('Dead', 'Expired'));
