-- It was received again, with what it says now. It is remembered for as long as a message of the later date.
UPDATE /*p*/inbox
SET endpoint = ?2, hash_algorithm = ?3, body_hash = ?4, last_seen_at = ?5, available_at = max(available_at, ?6)
WHERE row_id = ?1;
