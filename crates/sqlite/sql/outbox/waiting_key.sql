SELECT ordering_key FROM /*p*/outbox_waiting WHERE seq = ?1;
