-- Confirms the callback of one death; a message that has died again since wants another.
UPDATE /*p*/outbox_waiting SET announced = 1 WHERE seq = ?1 AND announced = 0 AND finished_at = ?2;
