-- Waiting rows that were sent stay until their log row is trimmed, and for the retention after they were sent.
DELETE FROM /*p*/outbox_waiting WHERE seq IN (
    SELECT w.seq FROM /*p*/outbox_waiting AS w
    WHERE (w.state = 'Sent' OR w.replayed_as IS NOT NULL) AND w.finished_at <= ?1
      AND NOT EXISTS (SELECT 1 FROM /*p*/outbox_log AS l WHERE l.seq = w.seq)
    LIMIT ?2)
RETURNING seq, lane_id, iif(state = 'Sent', finished_at, NULL);
