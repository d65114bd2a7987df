-- The key of a session's append lock. Producers hold it exclusively from before they read the newest seq until
-- their transaction ends, so seq order is commit order (I1). A settlement that lets a lane go idle holds it shared (I13).
--
-- Whoever may connect may lock any advisory key, so keys cannot be guessed. Of the 64 bits 16 are 'LK' and 8 the kind, so that
-- other users of advisory locks in the same database do not collide. The other 40 are a hash of kind and id under the
-- database's secret (lock_secret). pg_locks shows everybody the keys that are held, and from these no other key follows:
-- the hash takes 128 bits of secret as its message, and kind and id as its seed. It is no cryptographic hash. To invert it,
-- one would have to try some 2^88 states against two known keys. SHA-256 costs 4.6 µs more a lock, which costs 3.8 µs.
-- Two ids of a kind with one hash (one pair in 10^12) wait for each other and lose nothing.
-- Kinds: 1 append (session), 2 lane, 3 lane connection, 4 doorbell, 5 migration, 6 maintenance, 7 apply, 8 worker, 12 follow (stream),
-- 15 projection (subscription), 16 source.
--
-- The functions of this folder are inlined: they have no SET option. Callers on the hot path pass the secret as
-- `(SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)`, which is read once per statement. It is never a
-- constant or a variable in what producers call: a caller's debug_print_plan would show it.
CREATE OR REPLACE FUNCTION lanekeeper.append_lock(session_id bigint, secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497488869647450112 | (uuid_hash_extended(secret, 5497488869647450112 + session_id) & 1099511627775);
