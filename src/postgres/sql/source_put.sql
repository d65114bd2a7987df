-- Purpose: create a source, or set it to another definition, and record the version; NULL removes it. `apply` alone writes
-- here, under its lock, so that versions of a name go on where a removed one ended. Index: the keys of source and
-- source_version. Rows: one of each, and of source_poll.
WITH version AS (
    INSERT INTO lanekeeper.source_version (name, version, definition)
    SELECT $1, coalesce(max(v.version), 0) + 1, $2::jsonb FROM lanekeeper.source_version AS v WHERE v.name = $1
    RETURNING name, version, definition
), unpolled AS (
    -- Nobody asks for it any more, and its bot is free.
    DELETE FROM lanekeeper.source_poll AS p USING lanekeeper.source AS s
    WHERE s.name = $1 AND p.source_id = s.source_id AND NOT $2::jsonb ? 'poll'
), removed AS (
    DELETE FROM lanekeeper.source AS s WHERE s.name = $1 AND $2::jsonb IS NULL
)
INSERT INTO lanekeeper.source AS s (name, version, definition)
SELECT v.name, v.version, v.definition FROM version AS v WHERE v.definition IS NOT NULL
ON CONFLICT ON CONSTRAINT source_name_is_unique
DO UPDATE SET version = excluded.version, definition = excluded.definition, changed_at = now()
