-- What is queued says something else now. Its place, its attempts, its back-off and a delay that was asked for stay;
-- if it is for later now (?8), it leaves its ordering key until then.
UPDATE /*p*/inbox_queue
SET payload = ?2, content_type = ?3, headers = ?4, due_at = ?5, expires_at = ?6,
    ready_at = CASE
        WHEN state <> 'Open' THEN NULL
        WHEN ?8 THEN max(?7, iif(attempts > 0, coalesce(ready_at, ?7), ?7))
        WHEN attempts > 0 THEN ready_at
        ELSE min(ready_at, ?7)
    END,
    scheduled = state = 'Open' AND (?8 OR (scheduled AND attempts > 0)),
    joined = iif(?8 AND state = 'Open', NULL, joined)
WHERE item_id = ?1;
