-- Rows of one lane behind its own cursor.
DELETE FROM /*p*/outbox_log WHERE seq IN (
    SELECT seq FROM /*p*/outbox_log
    WHERE seq >= ?3 AND seq <= ?4 AND source = ?1 AND destination = ?2
    ORDER BY seq
    LIMIT ?5);
