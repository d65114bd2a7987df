-- Purpose: whether this connection changed one of these tables since it was opened: a rebuild may not.
-- Index: the catalogue's own. Rows: one.
SELECT coalesce(sum(pg_stat_get_xact_tuples_inserted(t.oid) + pg_stat_get_xact_tuples_updated(t.oid)
                    + pg_stat_get_xact_tuples_deleted(t.oid)), 0) > 0
FROM unnest($1::oid[]) AS t (oid)
