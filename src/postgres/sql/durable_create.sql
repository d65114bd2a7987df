-- Purpose: create a stream of the Durable Streams protocol with what it begins with, on behalf of $8; that setting ends with
-- the transaction. Keeps I1, I13. Rows: one.
-- The setting is a condition of an argument: no plan can append before it.
SELECT d.outcome, d.newest, d.closed, d.content_type
FROM (SELECT set_config('lanekeeper.producer', coalesce($8, ''), true) AS producer) AS p
CROSS JOIN LATERAL lanekeeper.create_durable_stream(
    CASE WHEN p.producer IS NOT NULL THEN $1 END, $2, $3, $4, $5, $6, $7::jsonb) AS d
