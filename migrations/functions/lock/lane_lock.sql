-- The key of a lane's lock. The session-level lock on it is the claim: at most one live connection has it (I2).
CREATE OR REPLACE FUNCTION lanekeeper.lane_lock(lane_id bigint, secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497489969159077888 | (uuid_hash_extended(secret, 5497489969159077888 + lane_id) & 1099511627775);
