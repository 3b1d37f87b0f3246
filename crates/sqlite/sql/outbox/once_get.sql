SELECT message_id FROM /*p*/outbox_once WHERE source = ?1 AND once_key = ?2;
