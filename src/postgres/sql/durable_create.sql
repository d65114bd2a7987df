-- Purpose: create a stream of the Durable Streams protocol with what it begins with. Keeps I1, I13. Rows: one.
SELECT d.outcome, d.newest, d.closed, d.content_type
FROM lanekeeper.create_durable_stream($1, $2, $3, $4, $5, $6, $7::jsonb) AS d
