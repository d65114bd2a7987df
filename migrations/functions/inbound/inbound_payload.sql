-- The payload of an inbound message: its fields, without those that it lacks. Inlined.
CREATE OR REPLACE FUNCTION lanekeeper.inbound_payload(
    p_origin text, p_content text, p_message_type text, p_payload jsonb, p_actor_id text, p_actor_name text,
    p_actor_avatar_url text, p_source_message_id text, p_source_channel_id text
) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN
    -- The caller's own nulls, inside his payload, stay.
    jsonb_strip_nulls(jsonb_build_object(
        'origin', p_origin,
        'message_type', p_message_type,
        'content', coalesce(p_content, ''),
        'actor_id', p_actor_id,
        'actor_name', p_actor_name,
        'actor_avatar_url', p_actor_avatar_url,
        'source_message_id', p_source_message_id,
        'source_channel_id', p_source_channel_id))
    || CASE WHEN p_payload IS NULL THEN '{}'::jsonb ELSE jsonb_build_object('payload', p_payload) END;
