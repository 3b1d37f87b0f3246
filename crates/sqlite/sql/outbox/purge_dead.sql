-- Removes one death; a message that has died again since stays.
DELETE FROM /*p*/outbox_waiting
WHERE seq = ?1 AND finished_at = ?2 AND reason IS NOT NULL AND replayed_as IS NULL
RETURNING lane_id, ordering_key;
