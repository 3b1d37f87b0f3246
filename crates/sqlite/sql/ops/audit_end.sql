-- An outcome is written once.
UPDATE /*p*/twobox_audit SET outcome = ?2, result = ?3 WHERE audit_id = ?1 AND outcome = 'begun';
