-- Purpose: the requeued dead letter of a lane that is delivered first. Keeps I11.
-- Index: dead_requeued. Rows: one. A payload over $2 bytes stays behind. OFFSET 0: it is rendered once.
SELECT d.dead_id, d.after_seq, d.seq, (d.created_at AT TIME ZONE 'UTC')::date AS day, d.message_id, d.event_type,
       d.created_at, octet_length(p.payload) AS size,
       CASE WHEN octet_length(p.payload) <= $2 THEN p.payload END AS payload, d.headers::text AS headers
FROM lanekeeper.next_requeued($1) AS n
JOIN lanekeeper.dead AS d ON d.dead_id = n.dead_id
CROSS JOIN LATERAL (SELECT d.payload::text AS payload OFFSET 0) AS p
