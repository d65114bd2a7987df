-- Purpose: sessions that are called $1, and then those whose name begins with it, as far as the collation sorts them
-- behind it. $2: streams, NULL for all. Index: session's unique (stream_id, name). Rows: at most 20 for each stream.
SELECT t.name AS stream, n.name AS session
FROM lanekeeper.stream AS t
CROSS JOIN LATERAL (
    SELECT f.name
    FROM (SELECT n.name FROM lanekeeper.session AS n
          WHERE n.stream_id = t.stream_id AND n.name >= $1 ORDER BY n.name LIMIT 20) AS f
    WHERE starts_with(f.name, $1)
) AS n
WHERE $2::int[] IS NULL OR t.stream_id = ANY ($2)
ORDER BY n.name <> $1, t.name, n.name LIMIT 50
