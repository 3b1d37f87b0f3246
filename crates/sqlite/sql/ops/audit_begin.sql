INSERT INTO /*p*/twobox_audit (at, actor, action, subject, detail) VALUES (?1, ?2, ?3, ?4, ?5);
