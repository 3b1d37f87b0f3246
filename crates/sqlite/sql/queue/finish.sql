-- The fenced end of a message that was handled.
DELETE FROM /*p*/inbox_queue
WHERE item_id = ?1 AND lease_token = ?2 AND lease_owner = ?3
    AND (SELECT message_id FROM /*p*/inbox WHERE row_id = ?1) = ?4;
