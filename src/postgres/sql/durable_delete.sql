-- Purpose: delete a stream of the Durable Streams protocol. Rows: one.
SELECT lanekeeper.delete_durable_stream($1, $2) AS deleted
