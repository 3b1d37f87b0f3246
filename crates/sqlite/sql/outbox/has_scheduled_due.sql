SELECT EXISTS (
    SELECT 1 FROM /*p*/outbox_waiting
    WHERE lane_id = ?1 AND state = 'Pending' AND joined IS NULL AND due_at <= ?2);
