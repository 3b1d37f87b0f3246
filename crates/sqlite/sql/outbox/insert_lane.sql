-- A lane for a destination nobody has registered; its grace period starts now.
INSERT INTO /*p*/outbox_lanes (source, destination, registered_at, cursor) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO NOTHING;
