-- Purpose: of events that a rebuild left out as dead letters, those that were delivered since. What is given stood in a table
-- of the projection's role, so lanes of others are not read.
-- Index: lane's, session's, outcome's and event's primary keys. Rows: at most one for each given.
SELECT g.lane_id, s.name AS session, e.seq, e.message_id, e.event_type, e.created_at, e.payload
FROM unnest($1::bigint[], $2::bigint[]) AS g (lane_id, seq)
JOIN lanekeeper.lane AS l ON l.lane_id = g.lane_id
JOIN lanekeeper.subscription AS f ON f.subscription_id = l.subscription_id
JOIN lanekeeper.session AS s ON s.session_id = l.session_id
JOIN lanekeeper.event AS e ON e.session_id = l.session_id AND e.seq = g.seq
WHERE l.subscription_id = $3 AND (f.events IS NULL OR e.event_type = ANY (f.events)) AND NOT EXISTS (SELECT FROM lanekeeper.outcome AS o WHERE o.lane_id = g.lane_id AND o.seq = g.seq)
ORDER BY g.lane_id, e.seq
