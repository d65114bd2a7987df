-- A UUIDv7 of the milliseconds of p_at and of the last 74 bits of a random UUID. PostgreSQL has such a function only from
-- 18 on. Inlined: it has no SET option.
CREATE OR REPLACE FUNCTION lanekeeper.message_id(p_at timestamptz, p_random uuid) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN ('0' || to_hex((date_part('epoch', p_at) * 1000)::bigint) || '7' || substr(p_random::text, 16))::uuid;
