-- Purpose: which of these sessions an append may have to wait for: somebody else's append to them is not over, or they are
-- not there, and may be somebody's that is not committed. Places in the arrays. Writes nothing; the locks of the others are
-- had until the statement ends, in shared mode. Index: stream's and session's names; OFFSET 0 keeps the lock above the
-- look-ups. Rows: one per session at the most; the caller limits them.
SELECT u.ord
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u (stream, session, ord)
LEFT JOIN LATERAL (
    SELECT s.session_id
    FROM lanekeeper.stream AS t
    CROSS JOIN LATERAL (
        SELECT s.session_id FROM lanekeeper.session AS s
        WHERE s.stream_id = t.stream_id AND s.name = u.session OFFSET 0
    ) AS s
    WHERE t.name = u.stream OFFSET 0
) AS s ON true
WHERE s.session_id IS NULL OR NOT pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(s.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))
