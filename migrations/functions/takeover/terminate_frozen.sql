-- Ends the connections of workers whose heartbeat stopped p_after_ms ago while their sockets stay open: a frozen process
-- (I6: Postgres' clock decides). These are its lane connections, and the ones that may hold the doorbell or wake for
-- live followers, known by their application_name. pid and backend start are compared, so that a reused pid is left alone. Needs the role of those
-- connections, or pg_signal_backend. Returns a row per backend ended.
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
            SELECT substring(a.application_name FROM '^lanekeeper (?:doorbell|follow) ([0-9]{1,18})$')::bigint, a.pid
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
