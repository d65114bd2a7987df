-- Purpose: what the Durable Streams protocol knows of a session; counts as a use of it where $3 says so. Rows: one.
SELECT d.session_id, d.content_type, d.first_seq, d.newest, d.closed, d.ttl_seconds, d.expires_at
FROM lanekeeper.durable_stream_state($1, $2, $3) AS d
