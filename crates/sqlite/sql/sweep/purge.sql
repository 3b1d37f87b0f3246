-- Final rows at or below the watermark, as many as one batch may purge: many may have the same date, and those that are left
-- are still recognised. Dead letters stay until somebody has looked at them.
DELETE FROM /*p*/inbox WHERE row_id IN (
    SELECT row_id FROM /*p*/inbox
    WHERE peer_id = ?1 AND available_at <= ?2 AND status = 'Done'
    ORDER BY available_at
    LIMIT ?3);
