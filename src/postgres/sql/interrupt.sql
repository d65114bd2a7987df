-- Purpose: append an event that is the next one of its session (E9), on behalf of $11; NULL: of whom the transaction says.
-- Keeps I1, I4, I13. Index: see the function. Rows: one; written are those of the session's lanes, with $5 1,000 events.
SELECT i.message_id, i.seq, i.duplicate, i.superseded, i.appended_again
FROM (
    SELECT set_config('lanekeeper.producer',
                      coalesce($11, current_setting('lanekeeper.producer', true), ''), true) AS producer
) AS s
CROSS JOIN LATERAL lanekeeper.interrupt(
    CASE WHEN s.producer IS NOT NULL THEN $1 END, $2, $3, $4::jsonb, $5, $6, $7, $8, $9, $10::jsonb) AS i
