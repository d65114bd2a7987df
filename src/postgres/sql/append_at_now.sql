-- Purpose: append one event that is to have seq $11, where no lock has to be waited for longer than $9 says (NULL: than the
-- connection may), on behalf of $10; both settings end with the transaction. Keeps I1, I13. Rows: one.
-- The settings are conditions of an argument: no plan can append before them.
SELECT e.message_id, e.seq, e.duplicate
FROM (
    SELECT set_config('lock_timeout', coalesce($9, current_setting('lock_timeout')), true) AS lock_timeout,
           set_config('lanekeeper.producer', $10, true) AS producer
) AS s
CROSS JOIN LATERAL lanekeeper.enqueue_at(
    CASE WHEN num_nulls(s.lock_timeout, s.producer) = 0 THEN $1 END, $2, $11, $3, $4::jsonb, $5, $6, $7, $8::jsonb) AS e
