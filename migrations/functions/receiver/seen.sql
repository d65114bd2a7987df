-- For receivers that keep their dedupe table in this database: true where this consumer of the caller's role has handled the
-- message before; the first call remembers it, and a concurrent one waits for it. Rows go after 7 days. What other roles
-- remember is no concern of the caller's, whatever they call their consumers. Raises LK006.
-- Index: seen_message's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.seen(consumer text, session text, message_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF (octet_length(seen.consumer) <= 200 AND octet_length(seen.session) <= 512 AND seen.message_id IS NOT NULL) IS NOT TRUE THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006',
            MESSAGE = 'consumer takes at most 200 bytes and session 512, and none of the arguments may be null: nothing was remembered';
    END IF;
    INSERT INTO lanekeeper.seen_message (receiver, consumer, session, message_id)
    VALUES (lanekeeper.producer(), seen.consumer, seen.session, seen.message_id)
    ON CONFLICT DO NOTHING;
    RETURN NOT FOUND;
END
$$;
