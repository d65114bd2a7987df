-- Purpose: the key of the migration lock, made as those of functions/lock are: these may be missing or older. Rows: one.
SELECT $1::bigint | (uuid_hash_extended(k.secret, $1::bigint) & 1099511627775) FROM lanekeeper.lock_secret AS k WHERE k.single
