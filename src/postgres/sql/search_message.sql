-- Purpose: where a message is: by the id that its producer gave it, among those that wait for an acknowledgement, and
-- among the newest $3 dead letters. The log itself has no index by message id: an append would pay for it.
-- $2: streams, NULL for all. Indexes: dedupe's primary key, sent's primary key, dead's primary key. Rows: at most 10.
SELECT DISTINCT t.name AS stream, n.name AS session, f.seq
FROM (
    SELECT d.session_id, d.seq
    FROM lanekeeper.stream AS t
    JOIN lanekeeper.dedupe AS d ON d.stream_id = t.stream_id AND d.producer = '' AND d.key = 'id:' || $1::uuid::text
    UNION ALL
    (SELECT l.session_id, x.seq FROM lanekeeper.sent AS x JOIN lanekeeper.lane AS l ON l.lane_id = x.lane_id
     WHERE x.message_id = $1 LIMIT 10)
    UNION ALL
    (SELECT l.session_id, d.seq
     FROM (SELECT d.lane_id, d.seq, d.message_id FROM lanekeeper.dead AS d ORDER BY d.dead_id DESC LIMIT $3) AS d
     JOIN lanekeeper.lane AS l ON l.lane_id = d.lane_id
     WHERE d.message_id = $1 LIMIT 10)
) AS f
JOIN lanekeeper.session AS n ON n.session_id = f.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id
WHERE $2::int[] IS NULL OR t.stream_id = ANY ($2)
ORDER BY stream, session, seq LIMIT 10
