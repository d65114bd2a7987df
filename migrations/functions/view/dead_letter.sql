-- For operators: dead letters with the names of stream, session and subscription; resolved ones too.
CREATE OR REPLACE VIEW lanekeeper.dead_letter AS
SELECT d.dead_id, t.name AS stream, n.name AS session, d.seq, s.name AS subscription, d.message_id, d.event_type,
       d.payload, d.headers, d.created_at, d.attempts, d.crashes, d.error, d.died_at, d.resolution, d.resolved_at, d.requeued_at, d.lane_id
FROM lanekeeper.dead AS d
JOIN lanekeeper.lane AS l ON l.lane_id = d.lane_id
JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
JOIN lanekeeper.session AS n ON n.session_id = l.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id;
