-- Purpose: whether a projection's function and role are as they must be, for `apply`. NULL: there is none.
-- Index: the catalogue's own. Rows: one.
WITH named AS (
    SELECT to_regprocedure($1 || '(jsonb)') AS function_oid,
           (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname = $2) AS role_oid,
           to_regnamespace($3) AS schema_oid
)
SELECT n.schema_oid IS NOT NULL AS has_schema,
       p.oid IS NOT NULL AS has_function,
       EXISTS (SELECT FROM pg_catalog.pg_proc AS o WHERE o.pronamespace = n.schema_oid AND o.proname = $4) AS has_other,
       p.prokind = 'f' AND p.prorettype = 'void'::regtype AS returns_void,
       p.prosecdef AS is_definer,
       EXISTS (SELECT FROM unnest(p.proconfig) AS c (setting) WHERE c.setting LIKE 'search_path=%') AS pins_path,
       r.oid IS NOT NULL AS has_role,
       r.rolcanlogin AS may_log_in,
       r.rolsuper OR r.rolcreaterole OR pg_has_role(r.oid, own.nspowner, 'MEMBER')
           OR has_table_privilege(r.oid, 'lanekeeper.lock_secret', 'SELECT')
           OR has_table_privilege(r.oid, 'lanekeeper.progress', 'INSERT, UPDATE, DELETE') AS is_mighty,
       has_schema_privilege(r.oid, n.schema_oid, 'USAGE') AS may_use_schema,
       has_function_privilege(r.oid, p.oid, 'EXECUTE') AS may_execute,
       has_schema_privilege(r.oid, own.oid, 'USAGE')
           AND has_function_privilege(r.oid, 'lanekeeper.begin_projection(int)', 'EXECUTE')
           AND has_function_privilege(
               r.oid, 'lanekeeper.settle_projection(bigint, bigint, bigint, bigint, date, bigint, bigint, bigint, bytea)',
               'EXECUTE') AS may_settle,
       ARRAY(SELECT t.name FROM unnest($5::text[]) AS t (name)
             WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_class AS c
                               WHERE c.relnamespace = n.schema_oid AND c.relname = t.name AND c.relkind = 'r')) AS missing_tables
FROM named AS n
CROSS JOIN pg_catalog.pg_namespace AS own
LEFT JOIN pg_catalog.pg_proc AS p ON p.oid = n.function_oid
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = n.role_oid
WHERE own.nspname = 'lanekeeper'
