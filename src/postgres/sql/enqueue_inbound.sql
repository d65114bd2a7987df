-- Purpose: append what a person wrote to an agent's session (E1, E2), on behalf of $12 where it is given; that setting ends
-- with the transaction. Keeps I1, I13. Rows: one.
-- The setting is a condition of an argument: no plan can append before it.
SELECT e.message_id, e.seq, e.duplicate
FROM (SELECT CASE WHEN $12::text IS NULL THEN '' ELSE set_config('lanekeeper.producer', $12, true) END AS producer) AS p
CROSS JOIN LATERAL lanekeeper.enqueue_inbound(
    CASE WHEN p.producer IS NOT NULL THEN $1 END, $2, $3, $4, $5::jsonb, $6, $7, $8, $9, $10, $11::jsonb) AS e
