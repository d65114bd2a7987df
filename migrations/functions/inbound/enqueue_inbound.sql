-- Appends what a person wrote to an agent's session, in the caller's transaction: an event of the stream `inbound` whose
-- type is the message type, with all fields in its payload. Returns its message id and seq; for a source message that was
-- enqueued before, those of the first call, with `duplicate`, also where the first is delivered or expired, and where the
-- session is closed. It is recognised by origin and source_message_id, for `retention.dedupe_days`; without a
-- source_message_id, as for terminal input, every call appends.
--
-- SQLSTATEs, each with nothing written: those of enqueue(); LK006 where a field is missing or too long. The content takes
-- 1 MiB. Control characters and escape sequences are data here: what types a message somewhere removes them.
--
-- The order inside a session (I1), the dedupe by producer and the ready entries (I13) are those of enqueue().
CREATE OR REPLACE FUNCTION lanekeeper.enqueue_inbound(
    IN session text,
    IN origin text,
    IN content text,
    IN message_type text DEFAULT 'text',
    IN payload jsonb DEFAULT NULL,
    IN actor_id text DEFAULT NULL,
    IN actor_name text DEFAULT NULL,
    IN actor_avatar_url text DEFAULT NULL,
    IN source_message_id text DEFAULT NULL,
    IN source_channel_id text DEFAULT NULL,
    IN headers jsonb DEFAULT '{}',
    OUT message_id uuid,
    OUT seq bigint,
    OUT duplicate boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    PERFORM lanekeeper.check_inbound(
        enqueue_inbound.origin, enqueue_inbound.content, enqueue_inbound.message_type, enqueue_inbound.payload,
        enqueue_inbound.actor_id, enqueue_inbound.actor_name, enqueue_inbound.actor_avatar_url,
        enqueue_inbound.source_message_id, enqueue_inbound.source_channel_id);
    SELECT e.message_id, e.seq, e.duplicate INTO message_id, seq, duplicate
    FROM lanekeeper.enqueue(
        'inbound', enqueue_inbound.session, enqueue_inbound.message_type,
        lanekeeper.inbound_payload(
            enqueue_inbound.origin, enqueue_inbound.content, enqueue_inbound.message_type, enqueue_inbound.payload,
            enqueue_inbound.actor_id, enqueue_inbound.actor_name, enqueue_inbound.actor_avatar_url,
            enqueue_inbound.source_message_id, enqueue_inbound.source_channel_id),
        -- An origin has no colon, so no two pairs have one key.
        dedupe_key => 'inbound:' || enqueue_inbound.origin || ':' || enqueue_inbound.source_message_id,
        headers => enqueue_inbound.headers) AS e;
END
$$;
