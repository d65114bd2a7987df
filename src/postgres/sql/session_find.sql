-- Purpose: a session by its names; NULL where the stream has none of that name.
-- Indexes: stream's unique name, session's unique (stream_id, name). Rows: one, none for an unknown stream.
SELECT t.stream_id, n.session_id
FROM lanekeeper.stream AS t
LEFT JOIN lanekeeper.session AS n ON n.stream_id = t.stream_id AND n.name = $2
WHERE t.name = $1
