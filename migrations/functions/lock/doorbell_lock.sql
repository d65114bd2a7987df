-- The key of the doorbell, the one lock by which a worker asks producers to notify: see ring().
CREATE OR REPLACE FUNCTION lanekeeper.doorbell_lock() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 5497492168182333440;
