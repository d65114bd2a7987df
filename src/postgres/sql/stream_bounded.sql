-- Purpose: have appends to a stream look whether a session is full, where some subscription in force refuses what is too
-- much (C5), or whether the event ends its session, where the stream has terminal types, or whether it matches the schema of
-- its type, where some type has one; and have them not look where nothing of this is so. Rows: one. Index: stream's primary key.
UPDATE lanekeeper.stream AS t SET bounded = NOT t.bounded
WHERE t.stream_id = $1 AND t.bounded <> (t.terminal IS NOT NULL OR t.judged IS NOT NULL OR EXISTS (
    SELECT FROM lanekeeper.subscription AS s
    WHERE s.stream_id = t.stream_id AND s.removed_at IS NULL AND s.max_pending IS NOT NULL AND s.on_full = 'refuse'))
