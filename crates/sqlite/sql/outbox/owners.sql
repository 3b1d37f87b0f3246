-- Who else holds lanes of a source.
SELECT DISTINCT lease_owner FROM /*p*/outbox_lanes
WHERE source = ?1 AND lease_owner IS NOT NULL AND lease_owner <> ?2 AND lease_until > ?3;
