-- The key of a lane connection's liveness lock. The connection holds it while it lives: a survivor that gets it knows
-- that the connection is gone.
CREATE OR REPLACE FUNCTION lanekeeper.connection_lock(connection_id bigint, secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497491068670705664 | (uuid_hash_extended(secret, 5497491068670705664 + connection_id) & 1099511627775);
