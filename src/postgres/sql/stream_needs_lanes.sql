-- Purpose: make appends look for missing lanes, after a subscription joined the stream (I13).
-- Rows: one. Index: stream's primary key.
UPDATE lanekeeper.stream AS s SET lanes_version = s.lanes_version + 1 WHERE s.stream_id = $1
