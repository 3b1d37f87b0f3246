-- A waiting row is a copy of the log row at its place, as long as that is there.
SELECT 'message ' || w.message_id FROM /*p*/outbox_waiting AS w
JOIN /*p*/outbox_log AS l ON l.seq = w.seq
WHERE l.message_id <> w.message_id OR l.destination <> w.destination;
