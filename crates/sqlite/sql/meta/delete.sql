DELETE FROM /*p*/twobox_meta WHERE name = ?1;
