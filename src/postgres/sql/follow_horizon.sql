-- Purpose: the commit horizon. Every transaction below `xact` is over, prepared ones included. `day` is no later than the day of
-- any event that a later or open transaction appended or will append: the day before the horizon's transaction began, the
-- beginning where that is hidden from this role. Rows: one.
SELECT x.horizon AS xact,
    CASE WHEN x.horizon = x.next THEN (clock_timestamp() AT TIME ZONE 'UTC')::date - 1
        ELSE coalesce((
            SELECT min((a.xact_start AT TIME ZONE 'UTC')::date) - 1 FROM pg_catalog.pg_stat_activity AS a
            WHERE lanekeeper.xact_number(a.backend_xid, x.next) = x.horizon), '2000-01-01'::date)
    END AS day
FROM (
    SELECT pg_snapshot_xmin(s.snapshot)::text::bigint AS horizon, pg_snapshot_xmax(s.snapshot)::text::bigint AS next
    FROM pg_current_snapshot() AS s (snapshot)
) AS x
