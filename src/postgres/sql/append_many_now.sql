-- Purpose: append the events of one array, in its order, all or none, where no lock has to be waited for longer than $3
-- says (NULL: than the connection may), on behalf of $4; both settings end with the transaction. Keeps I1, I13. Rows: one
-- per event; the caller limits them.
-- The settings are conditions of an argument: no plan can append before them.
SELECT e.message_id, e.seq, e.duplicate
FROM (
    SELECT set_config('lock_timeout', coalesce($3, current_setting('lock_timeout')), true) AS lock_timeout,
           set_config('lanekeeper.producer', $4, true) AS producer
) AS s
CROSS JOIN LATERAL lanekeeper.enqueue_many(CASE WHEN num_nulls(s.lock_timeout, s.producer) = 0 THEN $1 END, $2::jsonb) AS e
