-- Purpose: the columns of a read model's table that a switch copies. Index: the catalogue's own. Rows: its columns.
SELECT a.attname::text AS name, a.attidentity <> '' AS is_identity
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
WHERE c.relnamespace = to_regnamespace($1) AND c.relname = $2 AND c.relkind = 'r'
  AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum
