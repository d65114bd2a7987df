-- Purpose: the next events of a lane that a rebuild looks at, up to the lane's cursor. `applied`: whether the projection was
-- given it, by its present filter: an outcome says of the others what became of them. `again`: it is a dead letter.
-- Index: event's primary key, outcome's primary key and outcome_range. Rows: at most $5.
SELECT e.seq, e.message_id, e.event_type, e.created_at, e.payload,
       o.kind IS NULL AND (f.events IS NULL OR e.event_type = ANY (f.events)) AS applied,
       o.kind IS NOT DISTINCT FROM 'dead_lettered' AS again
FROM lanekeeper.event AS e
JOIN lanekeeper.lane AS l ON l.lane_id = $1
JOIN lanekeeper.subscription AS f ON f.subscription_id = l.subscription_id
LEFT JOIN LATERAL (
    SELECT o.kind FROM lanekeeper.outcome AS o WHERE o.lane_id = $1 AND o.seq = e.seq
    UNION ALL
    SELECT o.kind FROM lanekeeper.outcome AS o
    WHERE o.lane_id = $1 AND o.seq < e.seq AND o.to_seq >= e.seq
    LIMIT 1
) AS o ON true
WHERE e.session_id = $2 AND e.seq > $3 AND e.seq <= $4
ORDER BY e.seq LIMIT $5
