-- Counters are maintained, never counted by scanning.
UPDATE /*p*/inbox_peers
SET newest_available = max(newest_available, ?2), done = done + ?3, duplicates = duplicates + ?4,
    dead = dead + ?5, conflicts = conflicts + ?6, too_old = too_old + ?7
WHERE peer_id = ?1;
