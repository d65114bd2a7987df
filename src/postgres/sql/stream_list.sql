-- Purpose: every stream, with the schemas that are in force. Rows: all, a handful, and at most 100 schemas of each.
-- Index: event_schema's primary key.
SELECT s.stream_id, s.name, s.max_payload_bytes, s.fan_out, s.critical,
       s.retry_schedule_ms, s.max_attempts, s.on_exhausted, s.max_pending, s.on_full, s.acknowledge,
       s.keep_events, s.terminal, s.a2a, s.timeout_ms, s.batch, s.poll_floor_ms, (
           SELECT jsonb_object_agg(n.event_type, jsonb_build_object('schema', n.schema, 'rules', n.rules))
           FROM (
               SELECT DISTINCT ON (r.event_type) r.event_type, r.schema, r.rules
               FROM lanekeeper.event_schema AS r WHERE r.stream_id = s.stream_id
               ORDER BY r.event_type, r.version DESC
           ) AS n
           WHERE n.schema IS NOT NULL
       ) AS schemas
FROM lanekeeper.stream AS s
ORDER BY s.name
