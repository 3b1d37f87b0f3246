-- Counters are maintained, never counted by scanning.
UPDATE /*p*/inbox_peers
SET newest_available = max(newest_available, ?2), done = done + ?3, duplicates = duplicates + ?4,
    died = died + ?5, conflicts = conflicts + ?6, too_old = too_old + ?7, mismatches = mismatches + ?8,
    size = size + ?9, queued = queued + ?10, dead = dead + ?11
WHERE peer_id = ?1;
