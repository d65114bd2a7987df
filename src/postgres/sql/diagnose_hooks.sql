-- Purpose: which native events of agent CLIs became types that this release does not know ($1: those that it knows), and how
-- often, in the newest sessions of the stream hooks and in their newest events.
-- Indexes: session's primary key, read backwards over at most 5,000 sessions of any stream; event's primary key, backwards,
-- in the recent partitions, over at most 50 events of at most 200 sessions. Rows: at most $2.
SELECT e.headers ->> 'cli' AS cli, e.headers ->> 'native_event' AS native_event, count(*) AS events
FROM (
    SELECT n.session_id
    FROM (SELECT n.session_id, n.stream_id FROM lanekeeper.session AS n ORDER BY n.session_id DESC LIMIT 5000) AS n
    JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id AND t.name = 'hooks'
    ORDER BY n.session_id DESC LIMIT 200
) AS n
CROSS JOIN LATERAL (
    SELECT e.event_type, e.headers FROM lanekeeper.recent_event AS e
    WHERE e.session_id = n.session_id ORDER BY e.seq DESC LIMIT 50
) AS e
WHERE e.event_type <> ALL ($1::text[]) AND e.headers ? 'cli'
GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2 LIMIT $2
