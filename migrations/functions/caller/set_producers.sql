-- For operators: says which roles may append to a stream; NULL: every role that may execute enqueue(). A role's members may
-- too. An access token may if it is named, as `token NAME`, a source as `source NAME`. Takes effect with the next append. Raises LK003 for an unknown
-- stream, LK006 for an unknown role and for the stream `lifecycle`, to which the engine alone appends.
CREATE OR REPLACE FUNCTION lanekeeper.set_producers(stream text, roles text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_unknown text;
BEGIN
    IF set_producers.stream = 'lifecycle' THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'the stream lifecycle belongs to the engine: nothing was changed';
    END IF;
    SELECT string_agg(quote_literal(u.role), ', ') INTO v_unknown
    FROM unnest(set_producers.roles) AS u (role)
    WHERE u.role NOT LIKE 'token %' AND u.role NOT LIKE 'source %' AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = u.role);
    IF v_unknown IS NOT NULL OR array_position(set_producers.roles, NULL) IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = format('there is no role %s: nothing was changed', coalesce(v_unknown, 'NULL')),
            HINT = 'Pass the names of roles of this server, or NULL for every role that may execute enqueue().';
    END IF;
    UPDATE lanekeeper.stream AS s SET producers = set_producers.roles WHERE s.name = set_producers.stream;
    IF NOT FOUND THEN
        PERFORM lanekeeper.raise_unknown_stream(set_producers.stream);
    END IF;
END
$$;
