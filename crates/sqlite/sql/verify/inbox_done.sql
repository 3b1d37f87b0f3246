-- What is done has a time and a response, which duplicates are given.
SELECT 'message ' || message_id FROM /*p*/inbox
WHERE (status = 'Done' AND (processed_at IS NULL OR response IS NULL))
    OR (status = 'Dead' AND (processed_at IS NULL OR error IS NULL));
