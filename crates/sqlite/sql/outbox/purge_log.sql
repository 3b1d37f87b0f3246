-- A log row behind the cursor counts as sent once its waiting row is gone, so it goes with it.
DELETE FROM /*p*/outbox_log WHERE seq = ?1;
