-- Purpose: remember that the answer to a request is waited for. Indexes: stream's unique name, awaited_response's primary
-- key. Rows: one.
INSERT INTO lanekeeper.awaited_response (request_id, stream_id)
SELECT $1, t.stream_id FROM lanekeeper.stream AS t WHERE t.name = $2
ON CONFLICT DO NOTHING
