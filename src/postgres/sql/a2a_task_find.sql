-- Purpose: where the message is that a sender's task stands for: the dedupe key is the sender's own, so that nobody finds the
-- task of another. Indexes: stream's unique name, the primary keys of dedupe and session. Rows: at most one.
SELECT n.name AS session, d.seq, d.message_id
FROM lanekeeper.stream AS t
JOIN lanekeeper.dedupe AS d ON d.stream_id = t.stream_id AND d.producer = coalesce($2, '') AND d.key = 'key:' || $3
JOIN lanekeeper.session AS n ON n.session_id = d.session_id
WHERE t.name = $1
