-- A UUIDv7 as of message_id(), for the many events of one call: 12 bits of the event's number in the call, and 62 bits of
-- a hash of that under a random salt. Saves 2 µs for each event against a random UUID. Inlined: it has no SET option.
CREATE OR REPLACE FUNCTION lanekeeper.bulk_message_id(p_at timestamptz, p_ord bigint, p_salt bigint) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
RETURN ('0' || to_hex(((date_part('epoch', p_at) * 1000)::bigint << 16) | 28672 | (p_ord & 4095))
            || to_hex((hashint8extended(p_ord, p_salt) & 4611686018427387903) | -9223372036854775808))::uuid;
