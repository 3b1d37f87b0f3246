-- A watermark follows the newest message at a distance. One that is ahead of it would refuse what is new.
SELECT 'consumer ' || consumer || ', source ' || source FROM /*p*/inbox_peers WHERE watermark > newest_available;
