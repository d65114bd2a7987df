-- Purpose: the first day of the log that a follower reads: yesterday in UTC by the server's clock. Rows: one.
SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date - 1
