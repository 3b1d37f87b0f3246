SELECT (SELECT min(row_id) FROM /*p*/inbox), (SELECT max(row_id) FROM /*p*/inbox);
