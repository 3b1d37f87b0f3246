SELECT consumer, source, outbox, outbox_changed_at, outbox_changes FROM /*p*/inbox_peers ORDER BY consumer, source;
