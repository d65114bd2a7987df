-- Passes what a lane has not settled up to p_seq, with one outcome row for all of it (I4), whatever there is. Returns how many
-- events the row is for, filtered ones among them; 0 where the lane had nothing to deliver. By p_kind:
-- - expired: the session was closed. Requeued dead letters wait for an operator again, a replay of the lane ends, and a
--   parked lane is parked no more.
-- - superseded: an interrupt is the next event. What comes behind p_seq keeps its attempts and its retry. Requeued dead
--   letters that come before it wait for an operator again, and a replay that is under way ends. A parked lane stays parked: an operator is to see it.
-- - cancelled: as superseded, but p_seq alone gets the outcome. It is the head: what lies before it was filtered.
--
-- The lane may be held: progress goes on to the next version, so the holder settles nothing any more (I5). The row is
-- locked first, and read as it is then: what the holder has settled by now is not expired. The caller has the lane's
-- lock, or is in a short transaction: a holder that settles waits for it.
-- Index: progress' and ready's primary keys; replay_of_lane; event's, where the lane has a filter. Rows: one, and at most filter_look_back() events.
CREATE OR REPLACE FUNCTION lanekeeper.expire_lane(
    IN p_lane_id bigint, IN p_session_id bigint, IN p_seq bigint, IN p_day date, IN p_reason text,
    IN p_kind text DEFAULT 'expired',
    OUT expired bigint, OUT first_seq bigint
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
    v_progress lanekeeper.progress%ROWTYPE;
    v_types    text[];
    -- The head is behind p_seq, and its attempts are its own.
    v_behind   boolean;
BEGIN
    expired := 0;
    LOOP
        SELECT p.* INTO v_progress FROM lanekeeper.progress AS p
        WHERE p.lane_id = p_lane_id ORDER BY p.version DESC LIMIT 1 FOR UPDATE;
        EXIT WHEN FOUND;
        -- Whoever replaces progress deletes one row and inserts the next: the row that was waited for may be gone.
        IF NOT EXISTS (SELECT FROM lanekeeper.progress AS p WHERE p.lane_id = p_lane_id) THEN
            RETURN;
        END IF;
    END LOOP;
    UPDATE lanekeeper.replay_lane AS r SET state = 'cut'
    WHERE r.lane_id = p_lane_id AND r.state IN ('waiting', 'active')
      AND (p_kind = 'expired' OR p_kind = 'superseded' AND r.state = 'active');
    v_behind := p_kind <> 'expired' AND v_progress.cursor >= p_seq;

    IF v_progress.cursor < p_seq THEN
        SELECT s.events INTO v_types
        FROM lanekeeper.lane AS l JOIN lanekeeper.subscription AS s ON s.subscription_id = l.subscription_id
        WHERE l.lane_id = p_lane_id;
        IF v_types IS NULL OR p_seq - v_progress.cursor >= lanekeeper.filter_look_back()
           OR lanekeeper.has_matching(p_session_id, v_progress.cursor, v_progress.cursor_day, p_seq, v_types) THEN
            first_seq := CASE WHEN p_kind = 'cancelled' THEN p_seq ELSE v_progress.cursor + 1 END;
            expired := p_seq - first_seq + 1;
            INSERT INTO lanekeeper.outcome AS o (lane_id, seq, to_seq, kind, error)
            VALUES (p_lane_id, first_seq, nullif(p_seq, first_seq), p_kind, p_reason)
            -- An outcome from before belongs to an earlier delivery of that event.
            ON CONFLICT (lane_id, seq) DO UPDATE
            SET to_seq = excluded.to_seq, kind = excluded.kind, error = excluded.error, replaced_by = NULL,
                settled_at = excluded.settled_at;
        END IF;
    ELSIF v_behind AND (v_progress.requeued_after <= p_seq) IS NOT TRUE
       OR v_progress.retry_at IS NULL AND v_progress.parked_at IS NULL AND v_progress.requeued_after IS NULL THEN
        RETURN;
    END IF;
    IF v_progress.requeued_after IS NOT NULL THEN
        UPDATE lanekeeper.dead AS d SET requeued_at = NULL, after_seq = NULL
        WHERE d.lane_id = p_lane_id AND d.after_seq IS NOT NULL AND (p_kind = 'expired' OR d.after_seq <= p_seq);
        v_progress.requeued_after := lanekeeper.requeued_after(p_lane_id);
    END IF;
    -- Unacknowledged messages expire like those that were not sent.
    IF v_progress.sent IS NOT NULL THEN
        PERFORM lanekeeper.forget_sent(p_lane_id, p_seq);
    END IF;
    -- The entry of a wait or a retry that ends here before its time: there would be one more for each interrupt otherwise.
    DELETE FROM lanekeeper.ready AS r
    USING lanekeeper.lane AS l, lanekeeper.priority_level AS v
    WHERE l.lane_id = p_lane_id AND r.route = l.route AND r.priority = v.priority AND r.lane_id = p_lane_id
      AND r.due_at IN (v_progress.retry_at, CASE WHEN v_progress.sent <= p_seq THEN v_progress.ack_due_at END);
    IF p_kind = 'expired' THEN
        v_progress.parked_at := NULL;
    END IF;
    UPDATE lanekeeper.progress AS p
    SET version = p.version + 16, step = 0, cursor = greatest(p.cursor, p_seq), cursor_day = greatest(p.cursor_day, p_day),
        -- Those of a dead letter that came first are no attempts on the head.
        attempts = 0, crashes = 0, retry_at = NULL, parked_at = v_progress.parked_at,
        last_error = CASE WHEN v_progress.parked_at IS NOT NULL THEN p.last_error END,
        requeued_after = v_progress.requeued_after,
        sent = CASE WHEN p.sent > p_seq THEN p.sent END, ack_due_at = CASE WHEN p.sent > p_seq THEN p.ack_due_at END,
        changed_at = clock_timestamp()
    WHERE p.lane_id = p_lane_id AND p.version = v_progress.version;
END
$$;
