-- Purpose: register this connection for notifications of a stream's events. Index: stream's primary key. Rows: one.
SELECT lanekeeper.follow_stream($1)::text
