-- The host that a session's lanes belong to: the one that an operator bound it to, or that of the agent session of the
-- same name; empty where neither is known.
-- Index: session_host's primary key; the unique names of stream and session; agent_session's primary key.
CREATE OR REPLACE FUNCTION lanekeeper.host_of_session(p_stream_id int, p_session text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
    RETURN coalesce(
        (SELECT b.host FROM lanekeeper.session_host AS b WHERE b.stream_id = p_stream_id AND b.session = p_session),
        (SELECT a.host
         FROM lanekeeper.stream AS t
         JOIN lanekeeper.session AS n ON n.stream_id = t.stream_id AND n.name = p_session
         JOIN lanekeeper.agent_session AS a ON a.session_id = n.session_id
         WHERE t.name = 'hooks' AND lanekeeper.is_host_label(a.host)),
        '');
END
$$;
