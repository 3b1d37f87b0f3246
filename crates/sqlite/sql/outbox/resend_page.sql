-- What was sent from ?6 until before ?7, in log order: of the log by its receipts, and what had to wait by itself.
-- The plus keeps SQLite to the window of the log.
SELECT seq, waited FROM (
    SELECT l.seq AS seq, 0 AS waited FROM /*p*/outbox_log AS l
    WHERE l.seq > ?4 AND l.seq <= ?5 AND l.source = ?2 AND l.destination = ?3 AND (?8 IS NULL OR l.endpoint = ?8)
        AND NOT EXISTS (SELECT 1 FROM /*p*/outbox_waiting AS w WHERE w.seq = l.seq)
        AND EXISTS (SELECT 1 FROM /*p*/outbox_receipts AS r
            WHERE r.lane_id = ?1 AND r.sent_at >= ?6 AND r.sent_at < ?7 AND r.last_seq = (
                SELECT min(x.last_seq) FROM /*p*/outbox_receipts AS x WHERE x.lane_id = ?1 AND x.last_seq >= l.seq))
    UNION ALL
    SELECT w.seq, 1 FROM /*p*/outbox_waiting AS w
    WHERE w.seq > ?4 AND w.seq <= ?5 AND w.lane_id = ?1 AND +w.state = 'Sent' AND w.finished_at >= ?6
        AND w.finished_at < ?7 AND (?8 IS NULL OR w.endpoint = ?8))
ORDER BY seq
LIMIT ?9;
