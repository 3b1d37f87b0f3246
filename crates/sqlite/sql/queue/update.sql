-- What is queued says something else now. Its place in its ordering key, its attempts and its back-off stay.
UPDATE /*p*/inbox_queue
SET endpoint = ?2, payload = ?3, content_type = ?4, headers = ?5, due_at = ?6, expires_at = ?7,
    ready_at = iif(ready_at IS NULL, NULL, iif(attempts = 0, ?8, max(ready_at, ?8))), scheduled = ?9
WHERE item_id = ?1;
