-- Purpose: dead letters with what they carry. Index: dead's primary key. Rows: one per id given.
SELECT d.dead_id, d.stream, d.session, d.subscription, d.seq, d.message_id, d.event_type, d.created_at, d.attempts,
       d.crashes, d.error, d.died_at, d.resolution, d.resolved_at, d.requeued_at, d.lane_id, d.payload, d.headers
FROM lanekeeper.dead_letter AS d
WHERE d.dead_id = ANY ($1)
ORDER BY d.dead_id
