DELETE FROM /*p*/twobox_audit WHERE audit_id IN (
    SELECT audit_id FROM /*p*/twobox_audit WHERE at <= ?1 ORDER BY at LIMIT ?2);
