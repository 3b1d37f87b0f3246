-- It was received again, with what it says now.
UPDATE /*p*/inbox SET endpoint = ?2, hash_algorithm = ?3, body_hash = ?4, last_seen_at = ?5 WHERE row_id = ?1;
