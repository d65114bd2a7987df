-- Purpose: the pauses of limits that are not over, and how long each still lasts by Postgres' clock. Rows: one for each bucket
-- whose destination asked for a pause of late, 4,096 at the most: the longest.
SELECT p.bucket, ceil(extract(epoch FROM p.ends_at - clock_timestamp()) * 1000)::bigint AS left_ms
FROM lanekeeper.limit_pause AS p WHERE p.ends_at > clock_timestamp()
ORDER BY p.ends_at DESC LIMIT 4096
