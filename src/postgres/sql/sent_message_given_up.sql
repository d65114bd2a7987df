-- Purpose: which of these events of a session a subscription passed with an outcome, so that what a destination still does
-- for them can be cancelled. Indexes: subscription_by_name, session's unique names, lane's unique
-- (session_id, subscription_id), outcome's primary key and outcome_range. Rows: those asked for, 64 at most.
SELECT e.seq
FROM lanekeeper.subscription AS s
JOIN lanekeeper.session AS n ON n.stream_id = s.stream_id AND n.name = $2
JOIN lanekeeper.lane AS l ON l.session_id = n.session_id AND l.subscription_id = s.subscription_id
CROSS JOIN unnest($3::bigint[]) AS e (seq)
WHERE s.name = $1 AND s.removed_at IS NULL
  AND (EXISTS (SELECT FROM lanekeeper.outcome AS o WHERE o.lane_id = l.lane_id AND o.seq = e.seq)
       OR EXISTS (SELECT FROM lanekeeper.outcome AS o
                  WHERE o.lane_id = l.lane_id AND o.seq <= e.seq AND o.to_seq >= e.seq AND o.to_seq IS NOT NULL))
