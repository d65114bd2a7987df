-- Purpose: what a rebuild of a projection starts from: its function and tables, and what an earlier one left. The digest
-- tells whether that was of the same function and tables. The function's row tells also of one that was replaced and put
-- back, and the settings whether the subscription names another.
-- Index: the catalogue's own. Rows: one.
WITH read_model AS (
    SELECT c.oid, c.relname FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = to_regnamespace($2) AND c.relname = ANY ($3) AND c.relkind = 'r'
)
SELECT md5(pg_get_functiondef(to_regprocedure($1 || '(jsonb)')) || coalesce((
           SELECT string_agg(format('%s %s %s %s', m.relname, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod)), ','
                             ORDER BY m.relname COLLATE "C", a.attnum)
           FROM read_model AS m JOIN pg_catalog.pg_attribute AS a ON a.attrelid = m.oid AND a.attnum > 0 AND NOT a.attisdropped
       ), '') || (SELECT p.xmin::text FROM pg_catalog.pg_proc AS p WHERE p.oid = to_regprocedure($1 || '(jsonb)'))
           || coalesce(array_to_string(s.events, ','), '*')
           || coalesce(s.settings ->> 'function', '') || coalesce(s.settings ->> 'tables', '')) AS digest,
       ARRAY(SELECT m.oid FROM read_model AS m) AS tables,
       ARRAY(SELECT DISTINCT k.conrelid::regclass::text FROM pg_catalog.pg_constraint AS k
             WHERE k.contype = 'f' AND k.confrelid IN (SELECT m.oid FROM read_model AS m)
               AND k.conrelid NOT IN (SELECT m.oid FROM read_model AS m)) AS referring,
       (SELECT n.nspowner = own.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $5) AS owns_shadow,
       (SELECT obj_description(n.oid, 'pg_namespace') FROM pg_catalog.pg_namespace AS n WHERE n.nspname = $5) AS left_by,
       s.start_from = 'earliest' AND NOT EXISTS (
           SELECT FROM lanekeeper.session AS o
           WHERE o.stream_id = s.stream_id AND o.lanes_version = -2) AS has_every_session
FROM lanekeeper.subscription AS s
CROSS JOIN pg_catalog.pg_namespace AS own
WHERE s.subscription_id = $4 AND own.nspname = 'lanekeeper'
