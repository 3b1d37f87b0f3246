DELETE FROM /*p*/outbox_once WHERE (source, once_key) IN (
    SELECT source, once_key FROM /*p*/outbox_once WHERE created_at <= ?1 LIMIT ?2);
