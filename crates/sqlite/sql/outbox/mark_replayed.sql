UPDATE /*p*/outbox_waiting SET replayed_as = ?2, holds_key = 0 WHERE seq = ?1
RETURNING lane_id, ordering_key;
