-- Whether every snapshot in this database, of other sessions and to come, sees the transaction p_xact, which the caller
-- sees. False while in doubt.
--
-- Transaction numbers alone do not tell: a snapshot may be older than its transaction's first write. Each snapshot that
-- misses p_xact holds its session's backend_xmin at p_xact or before it. A newer one may do so too while something that
-- old is open anywhere in the server; it is then waited for as well.
-- A number that this server has not reached came with a dump of another one, of whose transactions none goes on here.
CREATE OR REPLACE FUNCTION lanekeeper.seen_by_every_snapshot(p_xact xid8) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_xact bigint := p_xact::text::bigint;
    v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
BEGIN
    -- This transaction may have cached an earlier state of the activity, which may be older than p_xact.
    PERFORM pg_stat_clear_snapshot();
    RETURN v_xact >= v_next OR NOT EXISTS (
        SELECT FROM pg_catalog.pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xmin IS NOT NULL
          AND lanekeeper.xact_number(a.backend_xmin, v_next) <= v_xact);
END
$$;
