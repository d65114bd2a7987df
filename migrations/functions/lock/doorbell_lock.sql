-- The key of the doorbell, the one lock by which a worker asks producers to notify: see ring().
CREATE OR REPLACE FUNCTION lanekeeper.doorbell_lock(secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497492168182333440 | (uuid_hash_extended(secret, 5497492168182333440) & 1099511627775);
