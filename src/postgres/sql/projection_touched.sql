-- Purpose: whether this transaction changed one of these tables, or appended an event: a rebuild may not.
-- Index: the catalogue's own. Rows: one.
SELECT coalesce(sum(pg_stat_get_xact_tuples_inserted(t.oid) + pg_stat_get_xact_tuples_updated(t.oid)
                    + pg_stat_get_xact_tuples_deleted(t.oid)), 0) > 0 AS touches,
       EXISTS (
           SELECT FROM pg_catalog.pg_inherits AS i
           WHERE i.inhparent = 'lanekeeper.event'::regclass AND pg_stat_get_xact_tuples_inserted(i.inhrelid) > 0
       ) AS appends
FROM unnest($1::oid[]) AS t (oid)
