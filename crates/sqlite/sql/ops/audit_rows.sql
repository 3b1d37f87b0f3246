SELECT audit_id, at, actor, action, subject, detail, outcome, result
FROM /*p*/twobox_audit
WHERE audit_id < ?1
ORDER BY audit_id DESC
LIMIT ?2;
