-- Begins to restore an archived day from the file with this SHA-256: returns the day and how many events the file has. The
-- caller inserts them into restored_event in the same transaction, and commits only where there are as many. From the commit
-- on replays read them, until p_keep after this call, or until replays that need them have ended.
--
-- One restore at a time: the lock is held until the transaction ends. SQLSTATEs: LK006 no such file is on record, or its day
-- is in the log, or it is restored already; LK007 another restore is under way.
-- Rows: one of archived_day, which is read whole; one of restored_file.
CREATE OR REPLACE FUNCTION lanekeeper.begin_restore(IN p_sha256 bytea, IN p_keep interval, OUT day date, OUT events bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_file  record;
    v_until timestamptz;
BEGIN
    IF p_keep NOT BETWEEN interval '1 minute' AND interval '90 days' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'restored days are kept for 1 minute to 90 days: nothing was restored';
    END IF;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(9)) THEN
        RAISE EXCEPTION USING ERRCODE = 'LK007',
            MESSAGE = 'another restore is under way, or a restored day is being dropped: nothing was restored',
            HINT = 'Try again when it has ended.';
    END IF;
    SELECT a.day, a.events, a.dropped_at INTO v_file FROM lanekeeper.archived_day AS a
    WHERE a.sha256 = p_sha256 ORDER BY a.archived_at DESC LIMIT 1;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = 'no file with this content is on record: nothing was restored',
            HINT = 'List those that count with `lanekeeper archive list`.';
    ELSIF v_file.dropped_at IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('%s is still in the log: nothing was restored', v_file.day),
            HINT = 'Replays read the log: start one.';
    END IF;
    SELECT f.keep_until INTO v_until FROM lanekeeper.restored_file AS f WHERE f.sha256 = p_sha256;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('%s is restored already, until %s: nothing was restored', v_file.day,
                             to_char(v_until AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
            HINT = 'Start the replay. A replay that needs the day keeps it until it has ended.';
    END IF;
    PERFORM lanekeeper.create_restored_partition(v_file.day);
    INSERT INTO lanekeeper.restored_file (sha256, day, events, keep_until)
    VALUES (p_sha256, v_file.day, v_file.events, clock_timestamp() + p_keep);
    INSERT INTO lanekeeper.operation (action, reason)
    VALUES ('restore', format('%s, %s events, for %s', v_file.day, v_file.events, p_keep));
    day := v_file.day;
    events := v_file.events;
END
$$;
