-- The date of the last row that one batch may purge. Rows at or below the new watermark go with it.
SELECT max(available_at), count(*) FROM (
    SELECT available_at FROM /*p*/inbox
    WHERE peer_id = ?1 AND available_at <= ?2 AND status = 'Done'
    ORDER BY available_at
    LIMIT ?3);
