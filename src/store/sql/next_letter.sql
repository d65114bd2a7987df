-- Purpose: the requeued dead letter of a lane that is delivered first. Index: dead_requeued. Rows: one.
SELECT d.dead_id, d.after_seq, d.seq, (d.created_at AT TIME ZONE 'UTC')::date AS day, d.message_id, d.event_type,
       d.created_at, d.payload::text AS payload, d.headers::text AS headers
FROM lanekeeper.next_letter($1) AS n
JOIN lanekeeper.dead AS d ON d.dead_id = n.dead_id
