-- What is newest is read in the order of the index, and a frozen worker keeps no doorbell.
--
-- To the planner a lane has one version, since autovacuum counts no dead rows. Then the index in its order and a bitmap
-- of all versions with a sort cost the same but for rounding, and what autovacuum has just counted decides. Behind a
-- snapshot that was held for a quarter of an hour, the bitmap read 1,500 pages for each append of a hot session, for as
-- long as it took until the next count. Lane connections are without bitmaps from the start.
--
-- Figures: docs/performance.md.

-- A later migration that replaces one of them has to say it in the function's own text.
ALTER FUNCTION lanekeeper.enqueue(text, text, text, jsonb, uuid, text, smallint, jsonb) SET enable_bitmapscan = off;
ALTER FUNCTION lanekeeper.enqueue_many(text, jsonb) SET enable_bitmapscan = off;
ALTER FUNCTION lanekeeper.newest_event(bigint, date) SET enable_bitmapscan = off;

-- For whoever else reads them so: operators, housekeeping, views. From the next count on, a lane has fifty versions to
-- the planner, and the one that the index has first is the cheapest to get by far.
ALTER TABLE lanekeeper.progress ALTER COLUMN lane_id SET (n_distinct = -0.02);

-- Ends the connections of workers whose heartbeat stopped while their sockets stay open: a frozen process. Those that
-- hold lanes, and the one that may hold the doorbell, which its name tells. Takes the same role as theirs, or
-- pg_signal_backend.
--
-- A loop, because a plan may evaluate the terminating function before the other conditions.
CREATE OR REPLACE FUNCTION lanekeeper.terminate_frozen(p_after_ms bigint) RETURNS TABLE (worker_id bigint, backend_pid int, silent_ms bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_frozen record;
BEGIN
    FOR v_frozen IN
        SELECT b.worker_id, b.backend_pid,
               (extract(epoch FROM clock_timestamp() - w.beat_at) * 1000)::bigint AS silent_ms
        FROM (
            SELECT c.worker_id, c.backend_pid
            FROM lanekeeper.lane_connection AS c
            JOIN pg_catalog.pg_stat_activity AS a ON a.pid = c.backend_pid AND a.backend_start = c.backend_start
            UNION ALL
            SELECT substring(a.application_name FROM '^lanekeeper doorbell ([0-9]{1,18})$')::bigint, a.pid
            FROM pg_catalog.pg_stat_activity AS a WHERE a.datname = current_database()
        ) AS b
        CROSS JOIN LATERAL (
            SELECT w.beat_at FROM lanekeeper.worker AS w WHERE w.worker_id = b.worker_id
            ORDER BY w.version DESC LIMIT 1
        ) AS w
        WHERE w.beat_at < clock_timestamp() - p_after_ms * interval '1 ms'
    LOOP
        IF pg_terminate_backend(v_frozen.backend_pid) THEN
            worker_id := v_frozen.worker_id;
            backend_pid := v_frozen.backend_pid;
            silent_ms := v_frozen.silent_ms;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
