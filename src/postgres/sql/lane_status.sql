-- Purpose: what people see of lanes. Index: lane's primary key, then those of the view.
-- Rows: one per lane given, in the order given.
SELECT l.lane_id, l.stream, l.session, l.subscription, l.state, l.cursor, l.newest_seq, l.behind, l.head_seq,
       extract(epoch FROM clock_timestamp() - l.head_created_at)::float8 AS head_age_s,
       l.attempts, l.crashes, l.retry_at, l.parked_at, l.last_error, l.changed_at, l.held_by, l.sent_seq, l.ack_due_at
FROM lanekeeper.lane_status AS l
WHERE l.lane_id = ANY ($1)
ORDER BY array_position($1, l.lane_id)
