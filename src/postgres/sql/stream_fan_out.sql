-- Purpose: the event types of a stream that subscriptions without a list of their own receive; NULL for all.
-- Index: stream's primary key. Rows: one.
SELECT t.fan_out FROM lanekeeper.stream AS t WHERE t.stream_id = $1
