-- Rows of nobody: duplicates are looked for under a consumer and a source.
SELECT 'message ' || i.message_id FROM /*p*/inbox AS i
LEFT JOIN /*p*/inbox_peers AS p ON p.peer_id = i.peer_id
WHERE p.peer_id IS NULL;
