-- How many events an append looks back to judge whether a lane with a filter is idle (I9).
CREATE OR REPLACE FUNCTION lanekeeper.filter_look_back() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 64;
