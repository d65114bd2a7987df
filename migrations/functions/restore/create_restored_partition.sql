-- Creates the partition for the restored events of one UTC day, where it is missing. The caller has the lock of restores.
--
-- Attaching takes SHARE UPDATE EXCLUSIVE on restored_event: replays read it meanwhile, also while the caller's transaction
-- fills the partition.
--
-- SECURITY DEFINER, because operators may log in as members of the schema's owner: a partition must belong to the owner, or
-- no worker could drop it.
CREATE OR REPLACE FUNCTION lanekeeper.create_restored_partition(p_day date) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET default_tablespace = '' SET default_table_access_method = heap SET datestyle = ISO
AS $$
DECLARE
    v_name text := 'restored_' || to_char(p_day, 'YYYYMMDD');
BEGIN
    IF to_regclass('lanekeeper.' || v_name) IS NOT NULL THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE TABLE lanekeeper.%I (LIKE lanekeeper.restored_event INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name);
    EXECUTE format('ALTER TABLE lanekeeper.restored_event ATTACH PARTITION lanekeeper.%I FOR VALUES FROM (%L) TO (%L)',
        v_name, p_day, p_day + 1);
END
$$;
