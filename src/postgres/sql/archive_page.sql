-- Purpose: the next events of a day behind (session $2, seq $3). Index: event_pkey, session_pkey, stream_pkey.
-- Rows: at most $4; the caller reads them as they come.
SELECT e.session_id, e.seq, n.stream, n.session, e.message_id, e.event_type, e.priority, e.created_at,
       e.payload, e.headers::text AS headers
FROM (
    SELECT p.session_id, p.seq, p.message_id, p.event_type, p.priority, p.created_at, p.payload, p.headers
    FROM lanekeeper.event AS p
    WHERE p.day = $1::date AND (p.session_id, p.seq) > ($2::bigint, $3::bigint)
    ORDER BY p.session_id, p.seq LIMIT $4
) AS e
CROSS JOIN LATERAL (
    SELECT t.name AS stream, s.name AS session
    FROM lanekeeper.session AS s JOIN lanekeeper.stream AS t ON t.stream_id = s.stream_id
    WHERE s.session_id = e.session_id OFFSET 0
) AS n
ORDER BY e.session_id, e.seq
