-- The guard of a message that was written as done and answers something else than usual: the last statement, which must
-- touch exactly one row. No index knows a response, so none is touched.
UPDATE /*p*/inbox SET response_type = ?4, response = ?5
WHERE row_id = ?3 AND peer_id = ?1 AND message_id = ?2 AND status = 'Done';
