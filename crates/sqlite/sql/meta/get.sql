SELECT value FROM /*p*/twobox_meta WHERE name = ?1;
