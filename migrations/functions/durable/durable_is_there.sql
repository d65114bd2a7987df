-- Whether a stream of the Durable Streams protocol is there: not deleted, and not expired by Postgres' clock (I6).
CREATE OR REPLACE FUNCTION lanekeeper.durable_is_there(
    p_deleted_at timestamptz, p_expires_at timestamptz, p_ttl_seconds bigint, p_used_at timestamptz
) RETURNS boolean
LANGUAGE sql VOLATILE
RETURN p_deleted_at IS NULL
    AND coalesce(p_expires_at > clock_timestamp(), true)
    AND coalesce(p_used_at + p_ttl_seconds * interval '1 second' > clock_timestamp(), true);
