INSERT INTO /*p*/twobox_restores (
    restored_at, backup, backup_at, outbox_before, inbox_before, outbox_instance, inbox_instance
) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);
