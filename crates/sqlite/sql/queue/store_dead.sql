-- A dead letter whose content was not known has it now, so that a replay has something to run. It is as dead as before.
UPDATE /*p*/inbox_queue
SET state = 'Dead', reason = 'rejected', ready_at = NULL, scheduled = 0, joined = NULL,
    last_error = (SELECT error FROM /*p*/inbox WHERE row_id = ?1)
WHERE item_id = ?1;
