-- Raises LK006 where the schema of the event's type, in its stream, does not take the payload; returns where it does, and
-- where the type has none. The DETAIL is JSON: `event_type`, `pointer`, `keyword`, and `event`, the number of the event in a
-- bulk call. The payload itself is not repeated: logs keep messages.
--
-- The schema is read here, in a statement of its own under the append lock: what `apply` committed until then is in force,
-- whatever the append waited for. What an interrupt appends again was taken before, and is not judged anew: it has set
-- `lanekeeper.appending_again` to what interrupt_pass() made.
-- Index: stream's unique name, event_schema's primary key backwards. Rows: one of each.
CREATE OR REPLACE FUNCTION lanekeeper.check_schema(p_stream text, p_session_id bigint, p_event_type text, p_payload jsonb, p_ord bigint DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_rules jsonb;
    v_found record;
BEGIN
    SELECT r.rules INTO v_rules
    FROM lanekeeper.stream AS t
    CROSS JOIN LATERAL (
        SELECT r.rules FROM lanekeeper.event_schema AS r
        WHERE r.stream_id = t.stream_id AND r.event_type = p_event_type
        ORDER BY r.version DESC LIMIT 1
    ) AS r
    WHERE t.name = p_stream;
    IF v_rules IS NULL THEN
        RETURN;
    END IF;
    IF coalesce(current_setting('lanekeeper.appending_again', true), '') <> ''
        AND current_setting('lanekeeper.appending_again', true) = lanekeeper.interrupt_pass(p_session_id)
    THEN
        RETURN;
    END IF;
    SELECT v.pointer, v.keyword, v.reason INTO v_found
    FROM lanekeeper.schema_violation(v_rules -> 'refs', v_rules -> 'schema', p_payload, 32, 100000) AS v;
    IF v_found.keyword IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('%sthe payload does not match the schema of %L at %s, keyword %s (%s): nothing was enqueued',
                             CASE WHEN p_ord IS NOT NULL THEN format('event %s of the array: ', p_ord) ELSE '' END,
                             left(p_event_type, 200), to_jsonb(v_found.pointer), v_found.keyword, v_found.reason),
            DETAIL = jsonb_strip_nulls(jsonb_build_object(
                'event_type', p_event_type, 'pointer', v_found.pointer, 'keyword', v_found.keyword, 'event', p_ord)),
            HINT = CASE v_found.keyword
                WHEN 'limit' THEN 'A schema is checked in at most 100000 steps. Send less in one event, or have apply take the schema away.'
                ELSE format('Append what the schema takes, or have apply change [stream.%s.schema].', p_stream) END;
    END IF;
END
$$;
