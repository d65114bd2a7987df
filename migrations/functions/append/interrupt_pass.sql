-- What lets an interrupt of a full session in: see refuse_full(). A digest with the secret of the schema's owner, for this
-- transaction and this session, so that nobody who may append can make one. NULL for no session, which is not full.
CREATE OR REPLACE FUNCTION lanekeeper.interrupt_pass(p_session_id bigint) RETURNS text
LANGUAGE plpgsql STRICT SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN encode(sha256(convert_to(
        format('interrupt %s %s %s', lanekeeper.read_lock_secret(), pg_current_xact_id(), p_session_id), 'UTF8')), 'hex');
END
$$;
