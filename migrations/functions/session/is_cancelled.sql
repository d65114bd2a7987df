-- Whether cancel() has marked an event with these headers. Inlined.
CREATE OR REPLACE FUNCTION lanekeeper.is_cancelled(p_headers jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(p_headers ? 'lanekeeper-cancelled', false);
