-- The highest seq ever given out, also when the log is empty.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = ?1), 0);
