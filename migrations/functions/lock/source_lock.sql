-- The key of a source's lock. The worker that asks the source's platform holds it, on the connection that enqueues what came
-- and moves the offset: a worker that lost the lock has lost that connection, and can commit neither.
CREATE OR REPLACE FUNCTION lanekeeper.source_lock(source_id bigint, secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497505362321866752 | (uuid_hash_extended(secret, 5497505362321866752 + source_id) & 1099511627775);
