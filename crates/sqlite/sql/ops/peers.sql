SELECT peer_id, consumer, source, watermark, done, duplicates, died, conflicts, too_old, mismatches, size, queued, dead,
    outbox_changes
FROM /*p*/inbox_peers
ORDER BY consumer, source;
