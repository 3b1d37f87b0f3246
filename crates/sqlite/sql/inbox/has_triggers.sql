-- Whether somebody wants to know of every row.
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = '/*p*/inbox' COLLATE NOCASE);
