-- Purpose: every source that is in force, for `apply`, for `status` and for workers that receive. Rows: all, some tens.
SELECT s.source_id, s.name, s.version, s.definition, s.changed_at FROM lanekeeper.source AS s ORDER BY s.name
