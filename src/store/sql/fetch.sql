-- Purpose: the next events of many lanes. Keeps I9, I11.
-- Index: event's primary key; partitions before the lane's day are pruned at run time.
-- Rows: at most $5 a lane. A payload over $6 bytes, and one that the filter leaves out, stays behind.
SELECT u.ord, e.seq, e.day, e.message_id, e.event_type, e.created_at, e.size,
       s.events IS NULL OR e.event_type = ANY (s.events) AS matched,
       CASE WHEN e.size <= $6 AND (s.events IS NULL OR e.event_type = ANY (s.events)) THEN e.payload::text END AS payload,
       CASE WHEN s.events IS NULL OR e.event_type = ANY (s.events) THEN e.headers::text END AS headers
FROM unnest($1::bigint[], $2::bigint[], $3::date[], $4::int[]) WITH ORDINALITY
     AS u (session_id, cursor, day, subscription_id, ord)
JOIN lanekeeper.subscription AS s ON s.subscription_id = u.subscription_id
CROSS JOIN LATERAL (
    SELECT e.seq, e.day, e.message_id, e.event_type, e.created_at, e.size, e.payload, e.headers
    FROM lanekeeper.event AS e
    WHERE e.session_id = u.session_id AND e.seq > u.cursor AND e.day >= u.day
    ORDER BY e.seq LIMIT $5
) AS e
