-- Settles many lanes that this connection holds. Per lane an operation:
--   1 keep     the cursor moves, the lane stays held
--   2 finish   as keep; where nothing is left the lane goes idle: its ready entry is deleted
--   3 retry    the head failed or must wait: the entry is replaced by one due after delay_ms
--   4 park     the entry is deleted until an operator unparks the lane
--   5 yield    the entry is replaced by one due now
--   6 discard  the entry was a spare one and is deleted; progress is not touched
--   7 release  the entry stays as it is
--   8 await    the lane waits for acknowledgements: as retry, but the wait is that of p_sents
-- Returns the ords in p_lanes that were written, and the result of each; a lane that is not among them was settled by
-- another holder, and nothing was written for it:
--   1 done     as asked
--   2 idle     finish: nothing is left
--   3 more     finish: there are newer events
--   4 busy     finish: nothing newer is committed, but a producer holds the session's append lock; the entry stays
-- The caller unlocks, after its commit, the lanes that it no longer holds.
--
-- Compare-and-set (I5): a lane's progress is written only where version and step are those that the claim read. So a
-- holder that lost its lock settles nothing.
-- Idle (I13): first, for lanes that finish, the session's append lock is tried in shared mode; then, in a statement whose
-- snapshot is taken after that, the log is read. An entry is deleted only with the lock and nothing newer in that
-- snapshot. What is committed is reported as `more` even without the lock: it need not wait for an append that is open.
-- The cursor passes an event that was not plainly delivered only with its outcome (I4), in the same transaction. An
-- outcome of a range has its last seq in p_outcome_replaced_by. The outcomes dead_lettered, dropped and expired are
-- flushed even where synchronous_commit is off: were one lost with the server, the event would come again, behind its
-- successor.
--
-- HOT: fifteen settlements in sixteen keep the key (lane_id, version) and count `step`, so Postgres writes the new row
-- beside the old one and touches no index; the sixteenth goes on to the next version. A look-up behind a held snapshot
-- then passes fifteen dead steps at most (I9). What is compared is version + step, which grows by one each time. All other
-- writers of progress go to the next version, sixteen further, where no number that a holder may have read can come again.
--
-- Arguments: where `changed` is false, progress is not written, so that survivors can still charge an earlier holder's
-- crash to the head. An array that no lane needs is empty: p_attempts, p_crashes, p_delays_ms, p_errors, p_history_from;
-- p_routes and p_priorities where no entry is replaced. `p_outcome_ords` are ords in p_lanes. `p_progress_ctids` is the
-- ctid of each lane's progress at its claim; NULL or empty where not known; where given, the lanes are in the order of
-- their entries' ids. `p_sents` is what progress.sent becomes, and empty where no lane requires acknowledgements;
-- `p_waits_ended` has the instants at which waits that ended before their time would have been over: the entries that are
-- due then are deleted.
-- An entry is deleted by ctid and id, without a search: entries are never updated. Where the table was rewritten
-- (VACUUM FULL) it stays, and the next claim discards it as a spare one. Where lanes begin before the recent partitions
-- the whole log is read.
-- Index: progress and ready by ctid; progress' and event's primary keys. Rows: those of the lanes given.
-- A change here is a change of finish() too, which does operation 2 for the usual group.
CREATE OR REPLACE FUNCTION lanekeeper.settle(
    p_worker_id bigint,
    p_lanes bigint[], p_sessions bigint[], p_versions bigint[], p_operations smallint[], p_changed boolean[],
    p_cursors bigint[], p_days date[], p_attempts int[], p_crashes int[], p_delays_ms bigint[], p_errors text[],
    p_routes int[], p_priorities smallint[], p_ready_ctids tid[], p_ready_ids bigint[], p_history_from bigint[],
    p_outcome_ords int[], p_outcome_seqs bigint[], p_outcome_kinds text[], p_outcome_replaced_by bigint[],
    p_outcome_errors text[], p_outcome_attempts int[], p_outcome_crashes int[],
    p_progress_ctids tid[] DEFAULT '{}', p_sents bigint[] DEFAULT '{}', p_waits_ended timestamptz[] DEFAULT '{}',
    OUT ords int[], OUT results smallint[]
)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_now    timestamptz := clock_timestamp();
    v_locked boolean[];
    -- All finish, with nothing to record about their heads.
    v_plain  boolean;
    -- And all go idle.
    v_idle   boolean := false;
    -- What is still to be settled, as ords in p_lanes.
    v_todo   int[];
    -- Of that: what was written, and the results.
    v_ords    int[];
    v_results smallint[];
    v_progress_ctids tid[];
    v_ord    int;
    v_hit    boolean[];
    -- Of those that were written: whether the lane has requeued dead letters.
    v_requeued boolean[];
    -- Some begin before the recent partitions.
    v_old      boolean;
BEGIN
    -- Shared with the other holders of the session's lanes, exclusive against its producers.
    SELECT array_agg(CASE WHEN p_operations[i] = 2
                          THEN pg_try_advisory_xact_lock_shared(lanekeeper.append_lock(p_sessions[i], (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))
                          ELSE false END),
           bool_and(p_operations[i] = 2 AND p_changed[i]),
           bool_or(p_operations[i] = 2 AND p_days[i] < (SELECT r.since FROM lanekeeper.recent_since AS r))
    INTO v_locked, v_plain, v_old
    FROM generate_series(1, cardinality(p_lanes)) AS i;

    -- In a statement of its own: its snapshot was taken after the append locks. The compare-and-set (I5) is on
    -- version and step. This is the usual case, where progress is written where the claim found it.
    IF v_plain AND cardinality(p_attempts) = 0 AND cardinality(p_crashes) = 0 AND cardinality(p_errors) = 0
       AND cardinality(p_progress_ctids) > 0 AND cardinality(p_sents) = 0 THEN
        WITH moved AS (
            UPDATE lanekeeper.progress AS p
            SET version = CASE WHEN p.step < 15 THEN p.version ELSE p.version + 16 END, step = (p.step + 1) % 16,
                cursor = p_cursors[i], cursor_day = p_days[i], attempts = 0, crashes = 0, retry_at = NULL,
                parked_at = NULL, last_error = NULL, changed_at = v_now
            FROM generate_series(1, cardinality(p_lanes)) AS i
            -- Found by ctid alone: no plan may read more of the table than that.
            WHERE p.ctid = p_progress_ctids[i] AND p.lane_id + 0 = p_lanes[i] AND p.version + p.step = p_versions[i]
            RETURNING i, (CASE WHEN p.requeued_after IS NOT NULL OR EXISTS (
                                   SELECT FROM lanekeeper.recent_event AS e
                                   WHERE e.session_id = p_sessions[i] AND e.seq > p_cursors[i] AND e.day >= p_days[i]) THEN 3
                               WHEN v_locked[i] THEN 2
                               ELSE 4 END)::smallint AS result
        )
        SELECT array_agg(m.i), array_agg(m.result), bool_and(m.result = 2) INTO ords, results, v_idle FROM moved AS m;
    END IF;

    IF cardinality(ords) IS DISTINCT FROM cardinality(p_lanes) THEN
        -- Of the usual case: settled before in this claim, by another holder, or the table was rewritten.
        SELECT array_agg(t.i) INTO v_todo
        FROM (SELECT generate_series(1, cardinality(p_lanes)) EXCEPT SELECT unnest(ords)) AS t (i);
        v_idle := false;
        -- The range of possible versions keeps the look-up from older, dead ones.
        WITH moved AS (
            UPDATE lanekeeper.progress AS p
            SET version = CASE WHEN p.step < 15 THEN p.version ELSE p.version + 16 END, step = (p.step + 1) % 16,
                cursor = p_cursors[i], cursor_day = p_days[i],
                attempts = coalesce(p_attempts[i], 0), crashes = coalesce(p_crashes[i], 0),
                retry_at = CASE WHEN p_operations[i] = 3 THEN v_now + p_delays_ms[i] * interval '1 ms' END,
                parked_at = CASE WHEN p_operations[i] = 4 THEN v_now END,
                sent = p_sents[i],
                ack_due_at = CASE WHEN p_sents[i] IS NULL THEN NULL
                                  WHEN p_operations[i] = 8 THEN v_now + p_delays_ms[i] * interval '1 ms'
                                  ELSE coalesce(p.ack_due_at, v_now) END,
                last_error = p_errors[i], changed_at = v_now
            FROM unnest(v_todo) AS i
            WHERE p_changed[i] AND p.lane_id = p_lanes[i] AND p.version + p.step = p_versions[i]
              AND p.version BETWEEN p_versions[i] - 15 AND p_versions[i]
            RETURNING i, p.requeued_after, p.ctid AS progress_ctid
        )
        SELECT array_agg(h.i), array_agg(h.requeued), array_agg(h.progress_ctid) INTO v_ords, v_requeued, v_progress_ctids
        FROM (
            SELECT i, requeued_after IS NOT NULL AS requeued, progress_ctid FROM moved
            UNION ALL
            SELECT i, false, p_progress_ctids[i] FROM unnest(v_todo) AS i WHERE NOT p_changed[i]
        ) AS h;

        -- `more` even without the lock: what is committed need not wait for the append that has it.
        SELECT array_agg((CASE WHEN p_operations[v_ords[n]] <> 2 THEN 1
                               WHEN v_requeued[n] OR EXISTS (
                                   SELECT FROM lanekeeper.recent_event AS e
                                   WHERE e.session_id = p_sessions[v_ords[n]] AND e.seq > p_cursors[v_ords[n]]
                                     AND e.day >= p_days[v_ords[n]]) THEN 3
                               WHEN v_locked[v_ords[n]] THEN 2
                               ELSE 4 END)::smallint)
        INTO v_results
        FROM generate_series(1, cardinality(v_ords)) AS n;

        INSERT INTO lanekeeper.ready (route, priority, due_at, lane_id, session_id, progress_ctid)
        SELECT p_routes[o.i], p_priorities[o.i],
               CASE WHEN p_operations[o.i] IN (3, 8) THEN v_now + p_delays_ms[o.i] * interval '1 ms' ELSE v_now END,
               p_lanes[o.i], p_sessions[o.i], o.progress_ctid
        FROM unnest(v_ords, v_progress_ctids) AS o (i, progress_ctid)
        WHERE p_operations[o.i] IN (3, 5, 8);
        ords := ords || v_ords;
        results := results || v_results;
    END IF;

    -- For lanes with an old backlog the recent partitions are not enough.
    IF v_old THEN
        SELECT array_agg((CASE WHEN results[n] IN (2, 4) AND EXISTS (
                                   SELECT FROM lanekeeper.event AS e
                                   WHERE e.session_id = p_sessions[ords[n]] AND e.seq > p_cursors[ords[n]]
                                     AND e.day >= p_days[ords[n]]) THEN 3
                               ELSE results[n] END)::smallint)
        INTO results
        FROM generate_series(1, cardinality(ords)) AS n;
    END IF;

    IF v_idle AND NOT v_old THEN
        -- In one scan: a row at one of these ctids goes if it has one of these ids, whichever.
        DELETE FROM lanekeeper.ready AS r
        WHERE r.ctid = ANY (p_ready_ctids) AND r.id = p_ready_ids[width_bucket(r.id, p_ready_ids)];
    ELSE
        DELETE FROM lanekeeper.ready AS r USING generate_series(1, cardinality(ords)) AS i
        WHERE (results[i] = 2 OR p_operations[ords[i]] IN (3, 4, 5, 6, 8))
          AND r.ctid = p_ready_ctids[ords[i]] AND r.id = p_ready_ids[ords[i]];
    END IF;

    IF cardinality(p_sents) > 0 THEN
        PERFORM lanekeeper.settle_sent(p_lanes, p_cursors, p_routes, p_waits_ended, ords);
    END IF;

    IF cardinality(p_history_from) > 0 THEN
        INSERT INTO lanekeeper.history (lane_id, from_seq, to_seq, attempts, worker_id, settled_at)
        SELECT p_lanes[i], p_history_from[i], p_cursors[i], coalesce(p_attempts[i], 0), p_worker_id, v_now
        FROM unnest(ords) AS i
        WHERE p_history_from[i] <= p_cursors[i];
    END IF;

    IF cardinality(p_outcome_ords) > 0 THEN
        -- Flushed before the successor is delivered: if it were lost with the server, the event would come
        -- again, behind its successor. Any other settlement that is lost is a redelivery, in order.
        IF p_outcome_kinds && '{dead_lettered,dropped,expired,dead_lettered_again}' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        v_hit := array_fill(false, ARRAY[cardinality(p_lanes)]);
        FOREACH v_ord IN ARRAY coalesce(ords, '{}') LOOP
            v_hit[v_ord] := true;
        END LOOP;
        WITH due AS MATERIALIZED (
            SELECT o.*, p_lanes[o.ord] AS lane_id, p_sessions[o.ord] AS session_id
            FROM unnest(p_outcome_ords, p_outcome_seqs, p_outcome_kinds, p_outcome_replaced_by, p_outcome_errors,
                        p_outcome_attempts, p_outcome_crashes)
                 AS o (ord, seq, kind, replaced_by, error, attempts, crashes)
            WHERE v_hit[o.ord] AND o.kind NOT IN ('redelivered', 'dead_lettered_again', 'replayed')
        ), dead AS (
            INSERT INTO lanekeeper.dead
                (lane_id, seq, message_id, event_type, payload, headers, created_at, attempts, crashes, error)
            SELECT d.lane_id, d.seq, e.message_id, e.event_type, e.payload::jsonb, e.headers, e.created_at,
                   d.attempts, d.crashes, d.error
            FROM due AS d
            JOIN lanekeeper.event AS e ON e.session_id = d.session_id AND e.seq = d.seq
            WHERE d.kind = 'dead_lettered'
        )
        INSERT INTO lanekeeper.outcome (lane_id, seq, kind, replaced_by, to_seq, error)
        SELECT d.lane_id, d.seq, d.kind, CASE WHEN d.kind = 'coalesced' THEN d.replaced_by END,
               CASE WHEN d.kind IN ('dropped', 'expired') THEN nullif(d.replaced_by, d.seq) END, d.error
        FROM due AS d
        -- A replayed event may get a second outcome; the first stays on record.
        ON CONFLICT DO NOTHING;
        IF p_outcome_kinds && '{redelivered,dead_lettered_again}' THEN
            PERFORM lanekeeper.settle_requeued(
                p_lanes, p_versions, v_hit, p_outcome_ords, p_outcome_kinds, p_outcome_replaced_by, p_outcome_errors,
                p_outcome_attempts, p_outcome_crashes);
        END IF;
        IF p_outcome_kinds && '{replayed}' THEN
            IF p_outcome_kinds && '{dead_lettered}' THEN
                PERFORM lanekeeper.dead_letter_restored(
                    p_lanes, p_sessions, v_hit, p_outcome_ords, p_outcome_kinds, p_outcome_seqs, p_outcome_errors,
                    p_outcome_attempts, p_outcome_crashes);
            END IF;
            PERFORM lanekeeper.settle_replayed(
                p_lanes, p_sessions, p_versions, v_hit, p_outcome_ords, p_outcome_kinds, p_outcome_seqs,
                p_outcome_replaced_by, p_outcome_attempts, p_outcome_crashes);
        END IF;
    END IF;
END
$$;
