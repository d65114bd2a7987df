-- The key of a worker's liveness lock, held on its control connection. A survivor that gets it knows that the process is
-- gone as a whole.
CREATE OR REPLACE FUNCTION lanekeeper.worker_lock(worker_id bigint, secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497496566228844544 | (uuid_hash_extended(secret, 5497496566228844544 + worker_id) & 1099511627775);
