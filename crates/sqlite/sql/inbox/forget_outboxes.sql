-- All but the newest: a source cannot fill the table.
DELETE FROM /*p*/inbox_outboxes WHERE peer_id = ?1 AND outbox IN (
    SELECT outbox FROM /*p*/inbox_outboxes WHERE peer_id = ?1 ORDER BY met_at DESC LIMIT -1 OFFSET ?2);
