-- Purpose: append the events of one array, in its order, all or none, where no lock has to be waited for longer than $3
-- says; the setting ends with the transaction. Keeps I1, I13. Rows: one per event; the caller limits them.
-- The setting is a condition of an argument: no plan can append before it.
SELECT e.message_id, e.seq, e.duplicate
FROM (SELECT set_config('lock_timeout', $3, true) AS lock_timeout) AS s
CROSS JOIN LATERAL lanekeeper.enqueue_many(CASE WHEN s.lock_timeout IS NOT NULL THEN $1 END, $2::jsonb) AS e
