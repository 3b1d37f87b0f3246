UPDATE /*p*/outbox_waiting SET announced = 1 WHERE seq = ?1 AND announced = 0;
