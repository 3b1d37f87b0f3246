-- A relay can reach the destination: its messages will not fail as "no route".
INSERT INTO /*p*/outbox_lanes (source, destination, registered_at, retries_max) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (source, destination) DO UPDATE
SET registered_at = max(registered_at, excluded.registered_at), retries_max = excluded.retries_max;
