SELECT available_at FROM /*p*/inbox WHERE row_id = ?1;
