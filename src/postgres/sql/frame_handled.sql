-- Purpose: which of these events of a session were handled: some subscription gets them, and each that does has passed them
-- without giving them up. A lane that is idle does not pass what its filter leaves out, so the filter is asked here.
-- Indexes: stream's and session's unique names, lane's unique (session_id, subscription_id), progress's primary key,
-- outcome's primary key and outcome_range. Rows: those asked for, 50 at most.
SELECT e.seq
FROM unnest($3::bigint[], $4::text[]) AS e (seq, event_type)
CROSS JOIN LATERAL (
    SELECT bool_and(p.cursor >= e.seq AND NOT EXISTS (
               SELECT FROM lanekeeper.outcome AS o
               WHERE o.lane_id = l.lane_id AND o.seq = e.seq AND o.kind <> 'coalesced'
           ) AND NOT EXISTS (
               SELECT FROM lanekeeper.outcome AS o
               WHERE o.lane_id = l.lane_id AND o.seq <= e.seq AND o.to_seq >= e.seq AND o.to_seq IS NOT NULL
           )) AS handled
    FROM lanekeeper.stream AS t
    JOIN lanekeeper.session AS n ON n.stream_id = t.stream_id AND n.name = $2
    JOIN lanekeeper.lane AS l ON l.session_id = n.session_id
    JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
    JOIN lanekeeper.progress AS p ON p.lane_id = l.lane_id
    WHERE t.name = $1 AND s.removed_at IS NULL AND (s.events IS NULL OR e.event_type = ANY (s.events))
) AS h
WHERE h.handled
