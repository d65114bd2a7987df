-- Purpose: the next events of several sessions, each from its seq on and none before its day, for live followers. A payload of
-- more than $6 bytes is left out: whoever wants it reads it with log_page.sql.
-- Index: event's primary key; earlier partitions are pruned. Rows: at most $4 of each session, and no more than the first
-- whose sizes reach $5 bytes together.
SELECT u.session_id, e.seq, e.day, e.message_id, e.event_type, e.priority, e.created_at, e.headers,
    CASE WHEN e.size <= $6 THEN e.payload::json END AS payload, e.size,
    lanekeeper.xact_number(e.xid, pg_snapshot_xmax(pg_current_snapshot())::text::bigint) AS xact,
    n.closed_seq, n.close_reason
FROM unnest($1::bigint[], $2::bigint[], $3::date[]) AS u (session_id, seq, day)
CROSS JOIN LATERAL (
    SELECT n.closed_seq, n.close_reason FROM lanekeeper.session AS n WHERE n.session_id = u.session_id OFFSET 0
) AS n
CROSS JOIN LATERAL (
    SELECT e.seq, e.day, e.message_id, e.event_type, e.priority, e.created_at, e.headers, e.payload, e.size, e.xid,
        sum(least(e.size, $6)) OVER (ORDER BY e.seq) - least(e.size, $6) AS bytes_before
    FROM (
        SELECT e.seq, e.day, e.message_id, e.event_type, e.priority, e.created_at, e.headers, e.payload, e.size, e.xmin AS xid
        FROM lanekeeper.event AS e
        WHERE e.session_id = u.session_id AND e.seq >= u.seq AND e.day >= u.day
        ORDER BY e.seq LIMIT $4
    ) AS e
) AS e
WHERE e.bytes_before < $5
ORDER BY u.session_id, e.seq
