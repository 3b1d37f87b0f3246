-- ?3: since when another outbox than those before is known; NULL if this one is no news.
UPDATE /*p*/inbox_peers
SET outbox = ?2, outbox_changed_at = coalesce(?3, outbox_changed_at), outbox_changes = outbox_changes + (?3 IS NOT NULL)
WHERE peer_id = ?1;
