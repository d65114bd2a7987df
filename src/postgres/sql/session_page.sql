-- Purpose: the ids of sessions, the newest first, out of a stretch of the next $3 of them: a stream with few must not read
-- them all. $1: streams, NULL for all. $2: with a lower id.
-- `scanned_to`: the lowest id of the stretch where there is more behind it, and otherwise NULL.
-- Index: session's primary key, read backwards. Rows: at most $4, or one without a session.
WITH stretch AS MATERIALIZED (
    SELECT n.session_id, n.stream_id FROM lanekeeper.session AS n
    WHERE $2::bigint IS NULL OR n.session_id < $2
    ORDER BY n.session_id DESC LIMIT $3
)
SELECT b.scanned_to, f.session_id
FROM (SELECT CASE WHEN count(*) >= $3 THEN min(x.session_id) END AS scanned_to FROM stretch AS x) AS b
LEFT JOIN (
    SELECT n.session_id FROM stretch AS n WHERE $1::int[] IS NULL OR n.stream_id = ANY ($1)
    ORDER BY n.session_id DESC LIMIT $4
) AS f ON true
ORDER BY f.session_id DESC
