-- Refuses what is no inbound message, with the error that tells why; returns where nothing is wrong. Sizes in bytes.
-- SQLSTATE: LK006.
CREATE OR REPLACE FUNCTION lanekeeper.check_inbound(
    p_origin text, p_content text, p_message_type text, p_payload jsonb, p_actor_id text, p_actor_name text,
    p_actor_avatar_url text, p_source_message_id text, p_source_channel_id text
) RETURNS void
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_problem text := CASE
        WHEN (p_origin ~ '^[a-z][a-z0-9_.-]{0,62}$') IS NOT TRUE THEN
            'an origin is where the message comes from, such as telegram or terminal: a-z first, then a-z, 0-9, _ . -, at most 63'
        WHEN p_message_type IS NULL OR p_message_type NOT IN ('text', 'voice', 'file') THEN
            'message_type is text, voice or file'
        WHEN p_message_type = 'text' AND coalesce(p_content, '') = '' THEN
            'a text message must have content'
        WHEN p_message_type <> 'text' AND (jsonb_typeof(p_payload) = 'object') IS NOT TRUE THEN
            'a voice or file message must have a payload, an object that says where the recording or file is'
        WHEN octet_length(p_content) > 1048576 THEN
            format('content takes at most 1048576 bytes and has %s', octet_length(p_content))
        WHEN octet_length(p_source_message_id) NOT BETWEEN 1 AND 400 THEN
            'source_message_id takes 1 to 400 bytes; leave it out where the source has none'
        WHEN octet_length(p_source_channel_id) NOT BETWEEN 1 AND 512 THEN
            'source_channel_id takes 1 to 512 bytes'
        WHEN octet_length(p_actor_id) NOT BETWEEN 1 AND 512 THEN 'actor_id takes 1 to 512 bytes'
        WHEN octet_length(p_actor_name) > 512 THEN 'actor_name takes at most 512 bytes'
        WHEN octet_length(p_actor_avatar_url) > 2048 OR p_actor_avatar_url !~ '^https?://' THEN
            'actor_avatar_url is an http or https URL of at most 2048 bytes'
    END;
BEGIN
    IF v_problem IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'LK006', MESSAGE = v_problem || ': nothing was enqueued';
    END IF;
END
$$;
