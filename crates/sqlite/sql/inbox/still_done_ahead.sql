-- The guard of messages whose rows were written at once: all of them are there as they were written.
SELECT message_id FROM /*p*/inbox WHERE row_id BETWEEN ?1 AND ?2 AND +peer_id = ?3 AND +status = 'Done' ORDER BY row_id;
