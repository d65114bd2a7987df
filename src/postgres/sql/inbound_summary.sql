-- Purpose: how an agent's session is, for a person in its chat: what waits in it, and what its agent reported. Index: the
-- unique key of session, and as of the views. Rows: one; read are the lanes of one session.
SELECT q.closed, q.behind, q.attempts, q.is_held, q.is_parked, a.turn_state, a.host, a.ended,
       a.active_s
FROM (
    SELECT bool_or(n.closed_at IS NOT NULL) AS closed, coalesce(max(l.behind), 0)::bigint AS behind,
           coalesce(max(l.attempts), 0)::int AS attempts, coalesce(bool_or(l.state = 'held'), false) AS is_held,
           coalesce(bool_or(l.state = 'parked'), false) AS is_parked
    FROM lanekeeper.stream AS t
    JOIN lanekeeper.session AS n ON n.stream_id = t.stream_id
    LEFT JOIN lanekeeper.lane_status AS l ON l.stream = t.name AND l.session = n.name AND l.state <> 'removed'
    WHERE t.name = 'inbound' AND n.name = $1
) AS q
LEFT JOIN LATERAL (
    SELECT r.turn_state, r.host, r.ended_at IS NOT NULL AS ended,
           extract(epoch FROM clock_timestamp() - r.last_activity_at)::bigint AS active_s
    FROM lanekeeper.session_registry AS r WHERE r.stream = 'hooks' AND r.session = $1
) AS a ON true
