-- Purpose: tell workers that somebody is about to wait for the lock of a lane. Rows: one.
SELECT pg_notify($1, $2::bigint::text)
