-- Purpose: append one event, where no lock has to be waited for longer than $9 says; the setting ends with the
-- transaction. Keeps I1, I13. Rows: one.
-- The setting is a condition of an argument: no plan can append before it.
SELECT e.message_id, e.seq, e.duplicate
FROM (SELECT set_config('lock_timeout', $9, true) AS lock_timeout) AS s
CROSS JOIN LATERAL lanekeeper.enqueue(
    CASE WHEN s.lock_timeout IS NOT NULL THEN $1 END, $2, $3, $4::jsonb, $5, $6, $7, $8::jsonb) AS e
