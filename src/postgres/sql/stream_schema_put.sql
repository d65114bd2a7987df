-- Purpose: bring the schemas of a stream's event types to those of the file: a further version of each that differs from the
-- one in force, and one without a schema where the file has none. Rows: at most 100, and those that are taken away.
-- Index: event_schema's primary key.
INSERT INTO lanekeeper.event_schema (stream_id, event_type, version, schema, rules)
SELECT $1, coalesce(a.event_type, n.event_type), coalesce(n.version, 0) + 1, a.schema, a.rules
FROM unnest($2::text[], $3::jsonb[], $4::jsonb[]) AS a (event_type, schema, rules)
FULL JOIN (
    SELECT DISTINCT ON (r.event_type) r.event_type, r.version, r.schema, r.rules
    FROM lanekeeper.event_schema AS r WHERE r.stream_id = $1
    ORDER BY r.event_type, r.version DESC
) AS n ON n.event_type = a.event_type
WHERE a.schema IS DISTINCT FROM n.schema OR a.rules IS DISTINCT FROM n.rules
