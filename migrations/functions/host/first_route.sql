-- The route of a new lane of a host-bound subscription: that of its session's host, or of lanes without a host. Where the
-- host has no route yet, the one that no worker scans, `/`: finish_moving() makes a route and moves the lane to it. It is
-- not made here: whoever makes the same one would wait for this transaction, which is a producer's and may stay open.
-- Index: host_route's unique key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.first_route(p_subscription_id int, p_session_id bigint) RETURNS int
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    v_stream_id int;
    v_session   text;
    v_host      text;
    v_route     int;
BEGIN
    SELECT s.stream_id, s.name INTO STRICT v_stream_id, v_session
    FROM lanekeeper.session AS s WHERE s.session_id = p_session_id;
    v_host := lanekeeper.host_of_session(v_stream_id, v_session);
    SELECT r.route INTO v_route FROM lanekeeper.host_route AS r
    WHERE r.subscription_id = p_subscription_id AND r.host = v_host;
    IF NOT FOUND THEN
        INSERT INTO lanekeeper.host_change (session) VALUES (v_session);
        -- `apply` made it with the subscription.
        SELECT r.route INTO STRICT v_route FROM lanekeeper.host_route AS r
        WHERE r.subscription_id = p_subscription_id AND r.host = '/';
    END IF;
    RETURN v_route;
END
$$;
