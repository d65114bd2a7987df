-- Purpose: how the holder of a source resumes the session of Discord's gateway, and behind which dispatch. No row: there is
-- none, or the source has another holder. Index: the key of source_poll. Rows: one.
SELECT p.resume ->> 'session_id' AS session_id, p.resume ->> 'address' AS address, p.next_update - 1 AS seq
FROM lanekeeper.source_poll AS p
WHERE p.source_id = $1 AND p.backend_pid = pg_backend_pid() AND p.resume IS NOT NULL
