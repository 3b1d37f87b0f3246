-- What is queued says something else now. Its place, its attempts, its back-off and a delay that was asked for stay;
-- if it is for later now (?9), it leaves its ordering key until then.
UPDATE /*p*/inbox_queue
SET endpoint = ?2, payload = ?3, content_type = ?4, headers = ?5, due_at = ?6, expires_at = ?7,
    ready_at = CASE
        WHEN state <> 'Open' THEN NULL
        WHEN ?9 THEN max(?8, iif(attempts > 0, coalesce(ready_at, ?8), ?8))
        WHEN attempts > 0 THEN ready_at
        ELSE min(ready_at, ?8)
    END,
    scheduled = state = 'Open' AND (?9 OR (scheduled AND attempts > 0)),
    joined = iif(?9 AND state = 'Open', NULL, joined)
WHERE item_id = ?1;
