-- Purpose: the same for the lanes of dead letters. Index: dead's primary key. Rows: one for each lane.
SELECT pg_notify($1, l.lane_id::text)
FROM (SELECT DISTINCT d.lane_id FROM lanekeeper.dead AS d WHERE d.dead_id = ANY ($2::bigint[])) AS l
