-- The key of the lock that one `apply` holds while it changes streams and subscriptions. Maintenance that would act on
-- the state before a change takes it too.
CREATE OR REPLACE FUNCTION lanekeeper.apply_lock(secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497495466717216768 | (uuid_hash_extended(secret, 5497495466717216768) & 1099511627775);
