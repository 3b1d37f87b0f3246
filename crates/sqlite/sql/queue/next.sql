SELECT min(ready_at) FROM /*p*/inbox_queue WHERE consumer = ?1 AND scheduled = ?2 AND ready_at IS NOT NULL;
