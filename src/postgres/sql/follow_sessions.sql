-- Purpose: the sessions of stream $1 that have one of the names $2, with their newest seq and whether they are closed.
-- Index: stream's unique name, session's unique (stream_id, name), event's primary key. Rows: one for each name.
SELECT t.stream_id, u.name, n.session_id, n.closed_seq, n.close_reason, coalesce(e.seq, 0) AS newest
FROM lanekeeper.stream AS t
CROSS JOIN unnest($2::text[]) AS u (name)
LEFT JOIN LATERAL (
    SELECT n.session_id, n.closed_seq, n.close_reason FROM lanekeeper.session AS n
    WHERE n.stream_id = t.stream_id AND n.name = u.name OFFSET 0
) AS n ON true
LEFT JOIN LATERAL (
    SELECT e.seq FROM lanekeeper.newest_event(n.session_id, (clock_timestamp() AT TIME ZONE 'UTC')::date) AS e
    WHERE n.session_id IS NOT NULL OFFSET 0
) AS e ON true
WHERE t.name = $1
