-- A clock that stands still until a test moves it, in place of the server's, for a scratch database.
-- The functions under test stay byte for byte what the migrations made them: they name clock_timestamp()
-- without a schema, and find this one first. Defaults and views were bound to the server's clock when they
-- were made, and are made again.
CREATE SCHEMA sim;
CREATE SEQUENCE sim.clock MINVALUE 0 START 0;
SELECT setval('sim.clock', 0, true);
-- An epoch later than any server's start: what a survivor may charge depends on that. Two hours before a
-- midnight. A sequence is read past every snapshot, so that open transactions see the time pass too.
CREATE FUNCTION sim.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN '2040-01-01T22:00:00Z'::timestamptz + pg_sequence_last_value('sim.clock'::regclass) * interval '1 ms';

DO $$
DECLARE
    v_statements text[];
    v_statement  text;
    v_functions  bigint;
    v_views      bigint;
    v_defaults   bigint;
BEGIN
    -- Everything else is then named with its schema.
    PERFORM set_config('search_path', 'pg_catalog', true);
    SELECT array_agg(format('ALTER FUNCTION %s SET search_path = sim, pg_catalog', p.oid::regprocedure)), count(*)
    INTO v_statements, v_functions
    FROM pg_proc AS p WHERE p.pronamespace = 'lanekeeper'::regnamespace AND 'search_path=pg_catalog, pg_temp' = ANY (p.proconfig);
    SELECT v_statements || array_agg(format('CREATE OR REPLACE VIEW lanekeeper.%I AS %s', c.relname, pg_get_viewdef(c.oid))),
           count(*)
    INTO v_statements, v_views
    FROM pg_class AS c
    WHERE c.relnamespace = 'lanekeeper'::regnamespace AND c.relkind = 'v' AND pg_get_viewdef(c.oid) LIKE '%clock_timestamp()%';
    SELECT v_statements || array_agg(format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT %s',
                                            d.adrelid::regclass, a.attname, pg_get_expr(d.adbin, d.adrelid))),
           count(*)
    INTO v_statements, v_defaults
    FROM pg_attrdef AS d JOIN pg_attribute AS a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
    JOIN pg_class AS c ON c.oid = d.adrelid AND c.relnamespace = 'lanekeeper'::regnamespace
    WHERE pg_get_expr(d.adbin, d.adrelid) LIKE '%clock_timestamp()%';
    IF v_functions < 20 OR v_views < 2 OR v_defaults < 10 THEN
        RAISE EXCEPTION 'the clock was not found: % functions, % views, % defaults', v_functions, v_views, v_defaults;
    END IF;
    -- Who may not wait for a lane is refused at once and not after 5 s.
    SELECT v_statements || array_agg(format('ALTER FUNCTION %s SET lock_timeout = ''15ms''', p.oid::regprocedure))
    INTO v_statements
    FROM pg_proc AS p
    WHERE p.pronamespace = 'lanekeeper'::regnamespace AND 'lock_timeout=5s' = ANY (p.proconfig);
    PERFORM set_config('search_path', 'sim, pg_catalog', true);
    FOREACH v_statement IN ARRAY v_statements LOOP
        EXECUTE v_statement;
    END LOOP;
    -- For the statements that are no functions, on connections made from now on.
    EXECUTE format('ALTER DATABASE %I SET search_path = sim, pg_catalog', current_database());
    EXECUTE format('ALTER DATABASE %I SET jit = off', current_database());
END
$$;

-- Back to an empty database at the epoch, with numbers from 1 again. Cheaper than another database.
CREATE FUNCTION sim.reset() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_table text;
BEGIN
    FOREACH v_table IN ARRAY '{event,session_tail,session,dedupe,lane,progress,ready,outcome,dead,history,worker,
        lane_connection,claim,operation,stream_change,expiring_day,expiring_session,closing_lane,closed_session,sent,message_count}'::text[] LOOP
        EXECUTE format('DELETE FROM lanekeeper.%I', v_table);
    END LOOP;
    PERFORM setval(format('lanekeeper.%I', s.sequencename)::regclass, s.start_value, false)
    FROM pg_sequences AS s
    WHERE s.schemaname = 'lanekeeper' AND s.sequencename NOT IN ('stream_stream_id_seq', 'subscription_subscription_id_seq');
    INSERT INTO lanekeeper.priority_level (priority) VALUES (-5), (5) ON CONFLICT DO NOTHING;
    PERFORM setval('sim.clock', 0, true);
    PERFORM lanekeeper.create_event_partition('2040-01-01'::date + d) FROM generate_series(0, 5) AS d;
END
$$;
