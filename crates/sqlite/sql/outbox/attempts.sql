SELECT replay, attempt, at, error FROM /*p*/outbox_attempts WHERE seq = ?1 ORDER BY attempt_id;
