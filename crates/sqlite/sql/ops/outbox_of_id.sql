-- Places of the messages with this id, newest first.
SELECT seq FROM /*p*/outbox_log WHERE message_id = ?1
UNION
SELECT seq FROM /*p*/outbox_waiting WHERE message_id = ?1
ORDER BY 1 DESC
LIMIT ?2;
