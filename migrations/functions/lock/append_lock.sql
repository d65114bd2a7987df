-- The key of a session's append lock. Producers hold it exclusively from before they read the newest seq until
-- their transaction ends, so seq order is commit order (I1). A settlement that lets a lane go idle holds it shared (I13).
--
-- Advisory lock keys are 64 bits: 16 bits 'LK', 8 bits of kind, 40 bits of id, so that other users of advisory locks
-- in the same database do not collide. Kinds: 1 append (session), 2 lane, 3 lane connection, 4 doorbell, 5 migration,
-- 6 maintenance, 7 apply, 8 worker. The functions of this folder are inlined: they have no SET option.
CREATE OR REPLACE FUNCTION lanekeeper.append_lock(session_id bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497488869647450112 + session_id;
