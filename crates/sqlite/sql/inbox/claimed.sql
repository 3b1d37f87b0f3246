-- The fence: a claim is its token's until somebody releases it.
SELECT 1 FROM /*p*/inbox WHERE peer_id = ?1 AND message_id = ?2 AND claim_token = ?3 AND claimed_at IS NOT NULL;
