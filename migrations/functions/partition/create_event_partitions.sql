-- Creates today's partition, and from an hour before midnight (UTC) on tomorrow's; returns how many it created.
--
-- No earlier, because a plan on the whole log locks every partition.
CREATE OR REPLACE FUNCTION lanekeeper.create_event_partitions() RETURNS bigint
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    SELECT count(*) FILTER (WHERE lanekeeper.create_event_partition(d.day))
    FROM (
        SELECT DISTINCT ((clock_timestamp() + h * interval '1 hour') AT TIME ZONE 'UTC')::date AS day
        FROM generate_series(0, 1) AS h
    ) AS d
$$;
