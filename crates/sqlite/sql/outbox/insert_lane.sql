-- A lane for a destination nobody has registered; its grace period starts now. The name comes as bytes, because in the log
-- it need not be text: a lane with another name than its messages would never get them (S19).
INSERT INTO /*p*/outbox_lanes (source, destination, registered_at, cursor) VALUES (?1, CAST(?2 AS TEXT), ?3, ?4)
ON CONFLICT DO NOTHING;
