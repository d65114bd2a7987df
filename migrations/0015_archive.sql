-- An archive of the log: a day is written to a file before it is dropped, where a worker is told to
-- (`retention.archive_dir`).

-- Files that workers wrote. A day has one row while it is in the log, with as many events as it had then; one
-- that is committed to it afterwards takes the row away, and the day is archived anew. Rows stay: they say where
-- a day is. A day that comes again after its drop, by a clock that was set back, has a file of its own.
CREATE TABLE lanekeeper.archived_day (
    day         date NOT NULL,
    -- The file, as the worker that wrote it calls it.
    place       text NOT NULL,
    events      bigint NOT NULL,
    bytes       bigint NOT NULL,
    archived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When it left the log.
    dropped_at  timestamptz,
    PRIMARY KEY (day, place, archived_at),
    CONSTRAINT something_was_archived CHECK (events > 0 AND bytes > 0)
);
CREATE UNIQUE INDEX archived_day_in_log ON lanekeeper.archived_day (day) WHERE dropped_at IS NULL;

-- Days past retention that have events and no file, the oldest first. Rows: one a day of the log.
CREATE FUNCTION lanekeeper.days_to_archive(p_retention_days int) RETURNS SETOF date
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_day date;
    v_any boolean;
BEGIN
    FOR v_day IN
        SELECT p.day FROM (
            SELECT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
            FROM pg_catalog.pg_inherits AS i
            JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'lanekeeper.event'::regclass
        ) AS p
        WHERE p.day < (clock_timestamp() AT TIME ZONE 'UTC')::date - p_retention_days
          AND NOT EXISTS (SELECT FROM lanekeeper.archived_day AS a WHERE a.day = p.day AND a.dropped_at IS NULL)
        ORDER BY p.day
    LOOP
        BEGIN
            EXECUTE format('SELECT EXISTS (SELECT FROM lanekeeper.%I)', 'event_' || to_char(v_day, 'YYYYMMDD'))
            INTO v_any;
        EXCEPTION WHEN undefined_table THEN
            -- Dropped since.
            v_any := false;
        END;
        IF v_any THEN
            RETURN NEXT v_day;
        END IF;
    END LOOP;
END
$$;

-- A default that another function of the name would share makes calls ambiguous: so these two are replaced.
-- Workers of the last release go on calling them without the new parameter.
DROP FUNCTION lanekeeper.keep_house(int, int);
DROP FUNCTION lanekeeper.drop_event_partition(date);

-- Drops the partition of one day, unless a lane still needs an event of it. In two calls, each a
-- transaction of its own: the first writes the last seq of sessions that have no newer event to
-- session_tail. The second drops, when no snapshot is left that misses those: in REPEATABLE READ such a
-- producer would see neither the events nor the tail, and begin at 1 again.
--
-- Whether the day is needed is judged again under locks that keep the answer: nothing is written to the
-- day (a producer may have appended to it before it passed, and not committed), and no apply changes
-- what a lane is to get. Only the drop itself locks the log. With p_archived, the day goes only where a file
-- has every event of it, which is counted under the same lock.
-- Returns dropped | needed | busy | unarchived.
CREATE FUNCTION lanekeeper.drop_event_partition(p_day date, p_archived boolean DEFAULT false) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
AS $$
DECLARE
    v_name   text := 'event_' || to_char(p_day, 'YYYYMMDD');
    v_xact   xid8;
    v_tails  bigint;
    v_events bigint;
BEGIN
    IF p_day >= (clock_timestamp() AT TIME ZONE 'UTC')::date OR lanekeeper.day_is_needed(p_day) THEN
        RETURN 'needed';
    END IF;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.apply_lock()) THEN
        RETURN 'busy';
    END IF;
    EXECUTE format('LOCK TABLE ONLY lanekeeper.%I IN SHARE MODE', v_name);
    IF lanekeeper.day_is_needed(p_day) THEN
        RETURN 'needed';
    END IF;
    IF p_archived THEN
        -- Events are never changed and go with their day: as many are the same ones.
        EXECUTE format('SELECT count(*) FROM lanekeeper.%I', v_name) INTO v_events;
        DELETE FROM lanekeeper.archived_day AS a
        WHERE a.day = p_day AND a.dropped_at IS NULL AND a.events <> v_events;
        IF v_events > 0 AND NOT EXISTS (
            SELECT FROM lanekeeper.archived_day AS a WHERE a.day = p_day AND a.dropped_at IS NULL)
        THEN
            RETURN 'unarchived';
        END IF;
    END IF;
    EXECUTE format($query$
        WITH tail AS (
            INSERT INTO lanekeeper.session_tail (session_id, seq)
            SELECT e.session_id, max(e.seq) FROM lanekeeper.%I AS e
            WHERE NOT EXISTS (
                SELECT FROM lanekeeper.event AS newer WHERE newer.session_id = e.session_id AND newer.day > %L::date)
            GROUP BY 1
            ON CONFLICT DO NOTHING
            RETURNING session_id, seq
        ), superseded AS (
            DELETE FROM lanekeeper.session_tail AS t USING tail
            WHERE t.session_id = tail.session_id AND t.seq < tail.seq
        )
        SELECT count(*) FROM tail
        $query$, v_name, p_day) INTO v_tails;
    SELECT d.xact INTO v_xact FROM lanekeeper.leaving_day AS d WHERE d.day = p_day;
    IF v_xact IS NULL OR v_tails > 0 THEN
        INSERT INTO lanekeeper.leaving_day AS d (day, xact) VALUES (p_day, pg_current_xact_id())
        ON CONFLICT (day) DO UPDATE SET xact = excluded.xact;
        RETURN 'busy';
    END IF;
    IF NOT lanekeeper.seen_by_every_snapshot(v_xact) THEN
        RETURN 'busy';
    END IF;
    -- Producers queue behind this request: it gives up soon, and the next round tries again.
    EXECUTE format('LOCK TABLE ONLY lanekeeper.event, ONLY lanekeeper.%I IN ACCESS EXCLUSIVE MODE', v_name);
    EXECUTE format('DROP TABLE lanekeeper.%I', v_name);
    DELETE FROM lanekeeper.leaving_day AS d WHERE d.day = p_day;
    UPDATE lanekeeper.archived_day AS a SET dropped_at = clock_timestamp()
    WHERE a.day = p_day AND a.dropped_at IS NULL;
    RETURN 'dropped';
EXCEPTION
    WHEN lock_not_available THEN
        RETURN 'busy';
    -- Somebody's view on the partition, say: the rest of housekeeping goes on.
    WHEN dependent_objects_still_exist OR insufficient_privilege THEN
        RAISE WARNING 'day % of the log cannot be dropped: %', p_day, SQLERRM;
        RETURN 'needed';
END
$$;

-- One round: partitions made ahead and dropped behind, up to 10,000 old keys of each kind forgotten. One
-- process at a time; for the others there is nothing to do. With p_archived, a day that no file has stays.
CREATE FUNCTION lanekeeper.keep_house(
    IN p_retention_days int, IN p_dedupe_days int, IN p_archived boolean DEFAULT false,
    OUT partitions_created bigint, OUT partitions_dropped bigint, OUT partitions_kept bigint, OUT keys_forgotten bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    v_day   date;
    v_count bigint;
BEGIN
    partitions_created := 0; partitions_dropped := 0; partitions_kept := 0; keys_forgotten := 0;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(2)) THEN
        RETURN;
    END IF;
    -- A producer may be making today's: it is not waited for, with what this transaction locks.
    IF pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(1)) THEN
        partitions_created := lanekeeper.create_event_partitions();
    END IF;

    DELETE FROM lanekeeper.dedupe AS d
    WHERE (d.stream_id, d.key) IN (
        SELECT o.stream_id, o.key FROM lanekeeper.dedupe AS o
        WHERE o.created_at < clock_timestamp() - p_dedupe_days * interval '1 day' LIMIT 10000);
    GET DIAGNOSTICS keys_forgotten = ROW_COUNT;
    -- A8: receivers' keys go after 7 days.
    DELETE FROM lanekeeper.seen_message AS s
    WHERE (s.consumer, s.session, s.message_id) IN (
        SELECT o.consumer, o.session, o.message_id FROM lanekeeper.seen_message AS o
        WHERE o.seen_at < clock_timestamp() - interval '7 days' LIMIT 10000);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    keys_forgotten := keys_forgotten + v_count;

    -- The oldest day, and no other: the drop's lock on the log lasts until the end of the transaction,
    -- and days must go in their order. The caller calls again while something was dropped.
    SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) INTO v_day
    FROM pg_catalog.pg_inherits AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'lanekeeper.event'::regclass
      AND to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_retention_days;
    IF v_day IS NOT NULL THEN
        IF lanekeeper.drop_event_partition(v_day, p_archived) = 'dropped' THEN
            partitions_dropped := 1;
        ELSE
            partitions_kept := 1;
        END IF;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION lanekeeper.days_to_archive, lanekeeper.drop_event_partition, lanekeeper.keep_house FROM PUBLIC;
