-- Purpose: dead letters with the beginning of what they carry, of which $2 characters are brought; 0 reads no payload at
-- all. Index: dead's primary key. Rows: one per id given.
SELECT d.dead_id, d.stream, d.session, d.subscription, d.seq, d.message_id, d.event_type, d.created_at, d.attempts,
       d.crashes, d.error, d.died_at, d.resolution, d.resolved_at, d.requeued_at, d.lane_id,
       CASE WHEN $2::int > 0 THEN left(p.text, $2) ELSE '' END AS payload,
       CASE WHEN $2 > 0 THEN octet_length(p.text) ELSE 0 END AS size
FROM lanekeeper.dead_letter AS d
CROSS JOIN LATERAL (SELECT CASE WHEN $2 > 0 THEN d.payload::text END AS text OFFSET 0) AS p
WHERE d.dead_id = ANY ($1)
ORDER BY d.dead_id
