-- The backstop scan: for each route in the order given, the first due ready entry from p_low_water_marks on, whoever holds its
-- lane; NULLs where there is none. Asked about once a second on a connection that no claim waits for, so that an entry
-- that appeared behind a claim's scan start is found (I13): its producer committed late, or its holder let it go.
--
-- p_low_water_marks are low-water marks, below which no entry can be and none can appear. Without them the scan would step over
-- every entry that died since the oldest snapshot that anybody holds: 39 ms after 100 s at 2,000 events/s. To raise
-- them the caller needs: asked_at, the start of this transaction; oldest_open, the oldest transaction that was open when
-- the entries were read, prepared ones included; own_transaction, a number drawn after that start, so that whatever gets a
-- higher one reads the clock later (the snapshot's xmax is no substitute: it may be lower than some open transaction's); and
-- server, which changes wherever committed settlements may have been lost, with a crash or a failover, and the entries that
-- they deleted are back. Must run in a transaction of its own, so that its start is no later than its snapshot.
-- Index: ready's primary key. Rows: one of each route and priority, returned as one row of arrays.
CREATE OR REPLACE FUNCTION lanekeeper.first_ready_entries(
    IN p_routes int[], IN p_low_water_marks timestamptz[],
    OUT due_at timestamptz[], OUT ready_ids bigint[], OUT lane_ids bigint[],
    OUT asked_at timestamptz, OUT oldest_open bigint, OUT own_transaction bigint, OUT server text
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    SELECT array_agg(f.due_at ORDER BY u.ord), array_agg(f.id ORDER BY u.ord), array_agg(f.lane_id ORDER BY u.ord),
           now(),
           pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
           pg_current_xact_id()::text::bigint,
           pg_postmaster_start_time()::text || (SELECT ' ' || e.epoch::text FROM lanekeeper.server_epoch AS e)
    INTO due_at, ready_ids, lane_ids, asked_at, oldest_open, own_transaction, server
    FROM unnest(p_routes, p_low_water_marks) WITH ORDINALITY AS u (route, low_water_mark, ord)
    LEFT JOIN LATERAL (
        SELECT n.due_at, n.id, n.lane_id
        FROM lanekeeper.priority_level AS l
        CROSS JOIN LATERAL (
            SELECT r.due_at, r.id, r.lane_id FROM lanekeeper.ready AS r
            WHERE r.route = u.route AND r.priority = l.priority AND r.due_at >= u.low_water_mark AND r.due_at <= now()
            ORDER BY r.due_at, r.id LIMIT 1
        ) AS n
        ORDER BY n.due_at, n.id LIMIT 1
    ) AS f ON true;
END
$$;
