-- Purpose: take back what follow_stream.sql registered on this connection. Index: stream's primary key. Rows: one.
SELECT lanekeeper.unfollow_stream($1)
