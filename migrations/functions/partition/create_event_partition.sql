-- Creates the partition of one UTC day; false where it exists already.
--
-- Attaching takes SHARE UPDATE EXCLUSIVE on the log: appends and reads go on meanwhile. A producer's append may be the first
-- of its day: what a session may set about new tables, and how it writes dates, is not the producer's to say.
--
-- SECURITY DEFINER, because workers may log in as members of the schema's owner: a partition must belong to the owner, or
-- no other worker could drop it.
CREATE OR REPLACE FUNCTION lanekeeper.create_event_partition(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET default_tablespace = '' SET default_table_access_method = heap SET datestyle = ISO
AS $$
DECLARE
    v_name text := 'event_' || to_char(day, 'YYYYMMDD');
BEGIN
    IF to_regclass('lanekeeper.' || v_name) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM pg_advisory_xact_lock(lanekeeper.maintenance_lock(1, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)));
    IF to_regclass('lanekeeper.' || v_name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE format('CREATE TABLE lanekeeper.%I (LIKE lanekeeper.event INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', v_name);
    EXECUTE format('ALTER TABLE lanekeeper.event ATTACH PARTITION lanekeeper.%I FOR VALUES FROM (%L) TO (%L)',
        v_name, day, day + 1);
    RETURN true;
END
$$;
