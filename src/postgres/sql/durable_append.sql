-- Purpose: append what a request of the Durable Streams protocol sent, or close its stream, or both, on behalf of $10; that
-- setting ends with the transaction. Keeps I1, I13. Rows: one.
-- The setting is a condition of an argument: no plan can append before it.
SELECT d.outcome, d.newest, d.closed, d.epoch, d.seq
FROM (SELECT set_config('lanekeeper.producer', coalesce($10, ''), true) AS producer) AS p
CROSS JOIN LATERAL lanekeeper.append_durable(
    CASE WHEN p.producer IS NOT NULL THEN $1 END, $2, $3, $4::jsonb, $5, $6, $7, $8, $9) AS d
