-- Whether every append to a stream that was followed as of the transaction p_xact notifies from now on, or is over.
--
-- Two steps, as in finish_changes(): a transaction may have read the stream's row before the flag was there, and write
-- later. First no snapshot from before p_xact is left; p_barrier is taken then, and is to be given in the calls that follow.
-- Then every transaction from before that barrier is over. Returns the barrier while it is waited for, 0 at the end,
-- NULL while the first step lasts.
CREATE OR REPLACE FUNCTION lanekeeper.follow_is_complete(p_xact xid8, p_barrier xid8) RETURNS xid8
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_barrier xid8 := p_barrier;
BEGIN
    IF v_barrier IS NULL THEN
        IF NOT lanekeeper.seen_by_every_snapshot(p_xact) THEN
            RETURN NULL;
        END IF;
        v_barrier := pg_snapshot_xmax(pg_current_snapshot());
    END IF;
    IF v_barrier::text::bigint <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint THEN
        RETURN '0'::xid8;
    END IF;
    RETURN v_barrier;
END
$$;
