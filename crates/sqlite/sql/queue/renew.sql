UPDATE /*p*/inbox_queue SET lease_until = ?5, ready_at = ?5
WHERE item_id = ?1 AND lease_token = ?2 AND lease_owner = ?3
    AND (SELECT message_id FROM /*p*/inbox WHERE row_id = ?1) = ?4;
