-- Purpose: the sessions that an archive file names, in its order; NULL where there is none. Index: stream's and session's unique
-- names. Rows: as many as are given, a page of the file.
SELECT s.session_id
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (stream, session, ord)
LEFT JOIN LATERAL (
    SELECT s.session_id FROM lanekeeper.stream AS t
    JOIN lanekeeper.session AS s ON s.stream_id = t.stream_id AND s.name = u.session
    WHERE t.name = u.stream
) AS s ON true
ORDER BY u.ord
