-- Keys that are older than the newest by the retention as well: a clock that is ahead makes nobody forget.
DELETE FROM /*p*/outbox_once WHERE (source, once_key) IN (
    SELECT source, once_key FROM /*p*/outbox_once
    WHERE created_at <= min(?1, (SELECT max(created_at) FROM /*p*/outbox_once)) - ?2
    LIMIT ?3);
