-- How many dead letters match, counted up to a bound.
SELECT count(*) FROM (
    SELECT 1 FROM /*p*/outbox_waiting
    WHERE reason IS NOT NULL AND replayed_as IS NULL AND finished_at <= ?1
      AND (?2 IS NULL OR source = ?2)
      AND (?3 IS NULL OR destination = ?3)
      AND (?4 IS NULL OR endpoint = ?4)
      AND (?5 IS NULL OR reason = ?5)
    LIMIT ?6);
