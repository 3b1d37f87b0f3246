-- The guard of a handled message that has no response: the row is there as the claim wrote it.
SELECT 1 FROM /*p*/inbox WHERE row_id = ?1 AND peer_id = ?2 AND message_id = ?3 AND status = 'Done';
