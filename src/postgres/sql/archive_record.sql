-- Purpose: record where a day of the log was archived, unless it is gone from the log. Index: archived_day_in_log.
-- Rows: at most 1.
INSERT INTO lanekeeper.archived_day (day, events, bytes, location, sha256)
SELECT $1::date, $2::bigint, $3::bigint, $4::text, $5::bytea
WHERE to_regclass('lanekeeper.event_' || to_char($1::date, 'YYYYMMDD')) IS NOT NULL
