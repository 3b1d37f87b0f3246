-- Seen again. The first hash stays.
UPDATE /*p*/inbox
SET last_seen_at = ?2, hash_algorithm = iif(body_hash IS NULL, ?3, hash_algorithm),
    body_hash = coalesce(body_hash, ?4)
WHERE row_id = ?1;
