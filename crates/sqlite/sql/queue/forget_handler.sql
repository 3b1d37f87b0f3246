-- No longer listed; still recognised.
UPDATE /*p*/inbox SET handler = NULL WHERE row_id = ?1;
