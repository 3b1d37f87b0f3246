-- The last times the file was restored, newest first.
SELECT restored_at, backup, backup_at, outbox_before, inbox_before, outbox_instance, inbox_instance
FROM /*p*/twobox_restores
ORDER BY restore_id DESC
LIMIT ?1;
