-- The key by which workers show that live followers wait for a stream's events: each such worker holds it shared, on the
-- connection that listens for them. Producers probe it only where `stream.followed` is set: see wake_followers().
CREATE OR REPLACE FUNCTION lanekeeper.follow_lock(stream_id bigint, secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497500964275355648 | (uuid_hash_extended(secret, 5497500964275355648 + stream_id) & 1099511627775);
