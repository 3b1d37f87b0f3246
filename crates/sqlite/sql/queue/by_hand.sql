-- Somebody has called it dead without its having been queued: listed all the same.
UPDATE /*p*/inbox SET handler = coalesce(handler, '') WHERE row_id = ?1;
