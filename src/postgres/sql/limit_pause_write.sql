-- Purpose: keep pauses of limits for other workers and later ones, by Postgres' clock; a pause is never shortened. Those that
-- are over go. Index: limit_pause's primary key. Rows: one for each bucket given; those that are over.
WITH over AS (
    DELETE FROM lanekeeper.limit_pause AS p WHERE p.ends_at < clock_timestamp() AND p.bucket <> ALL ($1)
)
INSERT INTO lanekeeper.limit_pause AS p (bucket, ends_at)
SELECT u.bucket, clock_timestamp() + $2 * interval '1 ms' FROM unnest($1::text[]) AS u (bucket) ORDER BY u.bucket
ON CONFLICT (bucket) DO UPDATE SET ends_at = excluded.ends_at WHERE p.ends_at < excluded.ends_at
