-- Raises LK006 for the first event of a bulk call whose payload the schema of its type does not take: see check_schema().
-- Only events of p_types, the types that have a schema, are looked at. A payload that is too large is refused before it is
-- judged. Per event: the ord of its session in p_session_ids. The caller has the append locks.
-- Rows: one look-up for each event of such a type.
CREATE OR REPLACE FUNCTION lanekeeper.check_schemas(
    p_stream text, p_session_ids bigint[], p_session_ords int[], p_events jsonb, p_types text[], p_max_bytes int
) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_event record;
BEGIN
    FOR v_event IN
        SELECT i.ord, i.e ->> 'event_type' AS event_type, i.e -> 'payload' AS payload, p_session_ids[i.session_ord] AS session_id
        FROM ROWS FROM (jsonb_array_elements(p_events), unnest(p_session_ords)) WITH ORDINALITY AS i (e, session_ord, ord)
        WHERE i.e ->> 'event_type' = ANY (p_types)
    LOOP
        IF octet_length(v_event.payload::text) > p_max_bytes THEN
            PERFORM lanekeeper.refuse_size(v_event.ord, octet_length(v_event.payload::text), p_max_bytes);
        END IF;
        PERFORM lanekeeper.check_schema(p_stream, v_event.session_id, v_event.event_type, v_event.payload, v_event.ord);
    END LOOP;
END
$$;
