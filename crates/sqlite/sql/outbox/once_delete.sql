-- Gives a key back whose message could not be appended.
DELETE FROM /*p*/outbox_once WHERE source = ?1 AND once_key = ?2;
