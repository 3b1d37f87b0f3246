SELECT 'consumer ' || consumer || ', source ' || source FROM /*p*/inbox_peers
WHERE done < 0 OR duplicates < 0 OR dead < 0 OR conflicts < 0 OR too_old < 0 OR mismatches < 0;
