-- Purpose: what is on record of an archive file: by its SHA-256, or else by its name, with which it may have been cut off or
-- altered. Rows: at most 1; archived_day is read whole, a row a day.
SELECT a.day, a.events, a.bytes, a.sha256 = $1::bytea AS is_whole, a.dropped_at IS NULL AS in_log
FROM lanekeeper.archived_day AS a
WHERE a.sha256 = $1 OR right(a.location, length($2::text) + 1) = '/' || $2
ORDER BY a.sha256 = $1 DESC, a.archived_at DESC LIMIT 1
