-- Purpose: where the answer to a request of this stream is. Indexes: stream's unique name, awaited_response's, session's and
-- stream's primary keys. Rows: at most one.
SELECT t.name AS stream, n.name AS session, a.session_id, a.seq
FROM lanekeeper.awaited_response AS a
JOIN lanekeeper.session AS n ON n.session_id = a.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
WHERE a.request_id = $1 AND a.stream_id = (SELECT o.stream_id FROM lanekeeper.stream AS o WHERE o.name = $2)
