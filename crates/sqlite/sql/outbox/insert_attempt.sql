INSERT INTO /*p*/outbox_attempts (seq, replay, attempt, at, error)
SELECT seq, replay, ?2, ?3, ?4 FROM /*p*/outbox_waiting WHERE seq = ?1;
