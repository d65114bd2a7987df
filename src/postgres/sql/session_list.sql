-- Purpose: sessions, the newest first, with how far they got and what the registry knows of them.
-- $1: one stream, $2: these sessions; NULL for all. $4: the seconds without activity after which a running turn is
-- stale. Index: session's primary key, read backwards; where a stream has few of the newest sessions, the scan passes
-- those of the others. Rows: at most $3.
SELECT n.session_id, t.name AS stream, n.name AS session, n.created_at, coalesce(e.seq, x.seq, 0) AS newest_seq,
       e.created_at AS last_event_at, l.lanes, l.parked,
       coalesce(l.behind, 0) AS behind, n.closed_at, n.close_reason, n.draining,
       a.session_id IS NOT NULL AS registered, a.cli, a.native_session_id, a.host, a.cwd, a.model,
       a.transcript_path, a.transcript_from, a.started_at, a.ended_at, a.last_activity, a.last_activity_at,
       a.last_prompt, a.last_prompt_at, a.last_notification, a.last_notification_at,
       a.last_error, a.last_error_code, a.last_error_at,
       CASE WHEN a.turn_state = 'running' AND a.last_activity_at < clock_timestamp() - make_interval(secs => $4::int)
            THEN 'stale' ELSE a.turn_state END AS turn_state,
       a.turn, a.turn_id, a.turn_started_at, a.turn_ended_at, a.turn_ended_by
FROM (
    SELECT n.session_id, n.stream_id, n.name, n.created_at, n.closed_at, n.close_reason, n.draining
    FROM lanekeeper.session AS n
    WHERE ($1::int IS NULL OR n.stream_id = $1) AND ($2::bigint[] IS NULL OR n.session_id = ANY ($2))
    ORDER BY n.session_id DESC LIMIT $3
) AS n
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
LEFT JOIN lanekeeper.agent_session AS a ON a.session_id = n.session_id
LEFT JOIN LATERAL (
    SELECT e.seq, e.created_at FROM lanekeeper.event AS e
    WHERE e.session_id = n.session_id ORDER BY e.seq DESC LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    SELECT x.seq FROM lanekeeper.session_tail AS x
    WHERE x.session_id = n.session_id ORDER BY x.seq DESC LIMIT 1
) AS x ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS lanes, count(p.parked_at) AS parked,
           max(lanekeeper.events_behind(n.session_id, p.cursor, p.cursor_day, e.seq, s.events)) AS behind
    FROM lanekeeper.lane AS l
    JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id AND s.removed_at IS NULL
    CROSS JOIN LATERAL (
        SELECT p.cursor, p.cursor_day, p.parked_at FROM lanekeeper.progress AS p
        WHERE p.lane_id = l.lane_id ORDER BY p.version DESC LIMIT 1
    ) AS p
    WHERE l.session_id = n.session_id
) AS l
ORDER BY n.session_id DESC
