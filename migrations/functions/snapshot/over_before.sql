-- Whether every transaction of this database that took its number before p_xact, which is over, is over too: prepared
-- ones as well. What they wrote is seen by the caller's next statement.
CREATE OR REPLACE FUNCTION lanekeeper.over_before(p_xact xid8) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_xact bigint := p_xact::text::bigint;
    v_next bigint := pg_snapshot_xmax(pg_current_snapshot())::text::bigint;
BEGIN
    PERFORM pg_stat_clear_snapshot();
    IF v_xact >= v_next THEN
        RETURN true;
    END IF;
    IF EXISTS (
        SELECT FROM pg_catalog.pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xid IS NOT NULL
          AND lanekeeper.xact_number(a.backend_xid, v_next) < v_xact)
    THEN
        RETURN false;
    END IF;
    -- After the sessions: one that is prepared meanwhile is among these before it leaves those.
    RETURN NOT EXISTS (
        SELECT FROM pg_catalog.pg_prepared_xacts AS p
        WHERE p.database = current_database() AND lanekeeper.xact_number(p.transaction, v_next) < v_xact);
END
$$;
