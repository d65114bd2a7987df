-- For receivers that keep their dedupe table in this database: true where this consumer has handled the message before;
-- the first call remembers it, and a concurrent one waits for it. Rows go after 7 days.
-- Index: seen_message's primary key. Rows: one.
CREATE OR REPLACE FUNCTION lanekeeper.seen(consumer text, session text, message_id uuid) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO lanekeeper.seen_message (consumer, session, message_id)
    VALUES (seen.consumer, seen.session, seen.message_id)
    ON CONFLICT DO NOTHING;
    RETURN NOT FOUND;
END
$$;
