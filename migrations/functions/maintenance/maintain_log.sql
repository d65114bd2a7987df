-- One round of maintenance of the log: creates partitions ahead, forgets up to 10,000 dedupe keys, 10,000 receivers' keys and
-- 10,000 producers of durable streams past their time, and drops the oldest day past p_retention_days where nothing needs it. With p_archived, a day that
-- no archive file has stays.
--
-- One process at a time; for the others there is nothing to do. One day in a call: the drop's lock on the log lasts until
-- the transaction ends, and days must go in their order. The caller calls again while a day was dropped, or has
-- more to be copied (is_copying).
CREATE OR REPLACE FUNCTION lanekeeper.maintain_log(
    IN p_retention_days int, IN p_dedupe_days int, IN p_archived boolean DEFAULT false,
    OUT partitions_created bigint, OUT partitions_dropped bigint, OUT partitions_kept bigint, OUT keys_forgotten bigint,
    OUT is_copying boolean
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    v_day   date;
    v_drop  text;
    v_count bigint;
BEGIN
    partitions_created := 0; partitions_dropped := 0; partitions_kept := 0; keys_forgotten := 0; is_copying := false;
    IF NOT pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(2)) THEN
        RETURN;
    END IF;
    -- A producer may be making today's: it is not waited for, with what this transaction locks.
    IF pg_try_advisory_xact_lock(lanekeeper.maintenance_lock(1)) THEN
        partitions_created := lanekeeper.create_event_partitions();
    END IF;

    DELETE FROM lanekeeper.dedupe AS d
    WHERE (d.stream_id, d.producer, d.key) IN (
        SELECT o.stream_id, o.producer, o.key FROM lanekeeper.dedupe AS o
        WHERE o.created_at < clock_timestamp() - p_dedupe_days * interval '1 day' LIMIT 10000);
    GET DIAGNOSTICS keys_forgotten = ROW_COUNT;
    -- A8: receivers' keys go after 7 days.
    DELETE FROM lanekeeper.seen_message AS s
    WHERE (s.receiver, s.consumer, s.session, s.message_id) IN (
        SELECT o.receiver, o.consumer, o.session, o.message_id FROM lanekeeper.seen_message AS o
        WHERE o.seen_at < clock_timestamp() - interval '7 days' LIMIT 10000);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    keys_forgotten := keys_forgotten + v_count;

    -- Producers of durable streams repeat no request for as long.
    DELETE FROM lanekeeper.durable_producer AS d
    WHERE (d.session_id, d.producer_id) IN (
        SELECT o.session_id, o.producer_id FROM lanekeeper.durable_producer AS o
        WHERE o.used_at < clock_timestamp() - p_dedupe_days * interval '1 day' LIMIT 10000);
    GET DIAGNOSTICS v_count = ROW_COUNT;
    keys_forgotten := keys_forgotten + v_count;

    -- Of workers that were gone when they reported.
    DELETE FROM lanekeeper.subscription_report AS r
    WHERE NOT EXISTS (SELECT FROM lanekeeper.worker AS w WHERE w.worker_id = r.worker_id);

    -- The oldest day, and no other: the drop's lock on the log lasts until the end of the transaction,
    -- and days must go in their order. The caller calls again while something was dropped.
    SELECT min(to_date(right(c.relname, 8), 'YYYYMMDD')) INTO v_day
    FROM pg_catalog.pg_inherits AS i
    JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'lanekeeper.event'::regclass
      AND to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - p_retention_days;
    IF v_day IS NOT NULL THEN
        v_drop := lanekeeper.drop_event_partition(v_day, p_archived);
        is_copying := v_drop = 'copying';
        IF v_drop = 'dropped' THEN
            partitions_dropped := 1;
        ELSE
            partitions_kept := 1;
        END IF;
    END IF;
END
$$;
