-- Makes the recent partitions begin yesterday; returns whether it moved them. Called by maintenance after midnight.
--
-- A plan on `event` has all partitions and locks them all at each execution, and a new connection takes a third of a
-- second to plan for a year of them. So appends, fetches and settlements read the view `recent_event`, whose first day
-- is a constant, and the planner leaves the other partitions out. `recent_since` tells that day.
--
-- Both views are state: their day changes every night. They are created in 0001_tables.sql and replaced only here,
-- together, `recent_since` first. A transaction that has read a view keeps its lock until its end. So a function that
-- reads `recent_since` and then `recent_event` in one transaction sees one state.
--
-- A replacement waits for every transaction that has appended, and producers queue behind it. So it tries for 50 ms,
-- ten times; where it never gets the lock the views stay as they are until the next call.
CREATE OR REPLACE FUNCTION lanekeeper.move_recent() RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms'
AS $$
DECLARE
    v_since date := (clock_timestamp() AT TIME ZONE 'UTC')::date - 1;
BEGIN
    IF EXISTS (SELECT FROM lanekeeper.recent_since AS r WHERE r.since = v_since)
       OR NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(4)) THEN
        RETURN false;
    END IF;
    FOR turn IN 1 .. 10 LOOP
        BEGIN
            -- This one first: readers of both rely on it.
            EXECUTE format('CREATE OR REPLACE VIEW lanekeeper.recent_since AS SELECT %L::date AS since', v_since);
            EXECUTE format($query$
                CREATE OR REPLACE VIEW lanekeeper.recent_event AS
                SELECT e.session_id, e.seq, e.day, e.priority, e.size, e.created_at, e.message_id, e.event_type, e.payload, e.headers
                FROM lanekeeper.event AS e WHERE e.day >= %L::date
                $query$, v_since);
            RETURN true;
        EXCEPTION WHEN lock_not_available THEN
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    RETURN false;
END
$$;
