SELECT peer_id, consumer, source, watermark, done, duplicates, died, conflicts, too_old, mismatches, size, queued, dead
FROM /*p*/inbox_peers
ORDER BY consumer, source;
