-- Copies exhausted events of restored days to the dead letters, within a settlement that hit: settle() finds those of the
-- log. p_ords are ords in p_lanes and p_hit.
-- Index: restored_event's primary key. Rows: one for each that was exhausted.
CREATE OR REPLACE FUNCTION lanekeeper.dead_letter_restored(
    p_lanes bigint[], p_sessions bigint[], p_hit boolean[], p_ords int[], p_kinds text[], p_seqs bigint[], p_errors text[],
    p_attempts int[], p_crashes int[]
) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO lanekeeper.dead (lane_id, seq, message_id, event_type, payload, headers, created_at, attempts, crashes, error)
    SELECT p_lanes[o.ord], o.seq, e.message_id, e.event_type, e.payload::jsonb, e.headers, e.created_at,
           o.attempts, o.crashes, o.error
    FROM unnest(p_ords, p_kinds, p_seqs, p_errors, p_attempts, p_crashes) AS o (ord, kind, seq, error, attempts, crashes)
    JOIN lanekeeper.restored_event AS e ON e.session_id = p_sessions[o.ord] AND e.seq = o.seq
    WHERE o.kind = 'dead_lettered' AND p_hit[o.ord]
$$;
