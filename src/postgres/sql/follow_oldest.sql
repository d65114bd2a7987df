-- Purpose: the first day that is in the log. Rows: one. It reads the catalogue: one row a partition.
SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD'))
FROM pg_catalog.pg_inherits AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = 'lanekeeper.event'::regclass
