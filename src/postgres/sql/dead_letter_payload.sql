-- Purpose: the payload of a dead letter that was too large to be read with it.
-- Index: dead's primary key. Rows: one.
SELECT d.payload::text FROM lanekeeper.dead AS d WHERE d.dead_id = $1
