-- The key of the lock that one `apply` holds while it changes streams and subscriptions. Maintenance that would act on
-- the state before a change takes it too.
CREATE OR REPLACE FUNCTION lanekeeper.apply_lock() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497495466717216768;
