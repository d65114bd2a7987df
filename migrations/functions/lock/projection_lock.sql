-- The key of a projection's lock. Whoever feeds the projection holds it shared until its transaction ends; the switch to a
-- rebuilt read model holds it exclusively: see begin_projection().
CREATE OR REPLACE FUNCTION lanekeeper.projection_lock(subscription_id bigint, secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497504262810238976 | (uuid_hash_extended(secret, 5497504262810238976 + subscription_id) & 1099511627775);
