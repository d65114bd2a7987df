-- Settles events of one lane in the transaction in which a projection's function handled them, so that either both commit or
-- neither does (A9). The transaction is that of the projection's own role, which has no right on the tables: the worker that
-- holds the lane brings a permit for exactly this settlement, see projection_permit(). Without one the role could move its
-- cursors, and by an open transaction make the takeover of a dead worker's lanes wait.
-- Returns whether it was written: not if another holder settled the lane (I5, compare-and-set on version and step).
-- `p_dead_id`: the event was a requeued dead letter with the seq `p_dead_seq`, and the cursor stays.
-- Raises 42501 without a fitting permit.
-- Index: progress' primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.settle_projection(
    p_worker_id bigint, p_lane_id bigint, p_version bigint, p_cursor bigint, p_day date, p_history_from bigint,
    p_dead_id bigint, p_dead_seq bigint, p_permit bytea
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_fitting bytea := lanekeeper.projection_permit(
        session_user, p_lane_id, p_version, p_cursor, p_day, p_history_from, p_dead_id, p_dead_seq);
    v_ords    int[];
BEGIN
    -- Hashes of both: how long the comparison takes says nothing about the permit.
    IF sha256(p_permit) IS DISTINCT FROM sha256(v_fitting) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = 'only a worker that holds the lane settles it: nothing was changed';
    END IF;
    SELECT s.ords INTO v_ords
    FROM lanekeeper.settle(
        p_worker_id, ARRAY[p_lane_id], ARRAY[0::bigint], ARRAY[p_version], ARRAY[1::smallint], ARRAY[true],
        ARRAY[p_cursor], ARRAY[p_day], '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}',
        CASE WHEN p_history_from IS NULL THEN '{}' ELSE ARRAY[p_history_from] END,
        CASE WHEN p_dead_id IS NULL THEN '{}' ELSE ARRAY[1] END,
        CASE WHEN p_dead_id IS NULL THEN '{}' ELSE ARRAY[p_dead_seq] END,
        CASE WHEN p_dead_id IS NULL THEN '{}' ELSE ARRAY['redelivered'] END,
        CASE WHEN p_dead_id IS NULL THEN '{}' ELSE ARRAY[p_dead_id] END,
        CASE WHEN p_dead_id IS NULL THEN '{}' ELSE ARRAY[NULL::text] END,
        CASE WHEN p_dead_id IS NULL THEN '{}' ELSE ARRAY[0] END,
        CASE WHEN p_dead_id IS NULL THEN '{}' ELSE ARRAY[0] END) AS s;
    RETURN coalesce(cardinality(v_ords), 0) = 1;
END
$$;
