-- Purpose: cancel one message (E9), on behalf of $5; NULL: of whom the transaction says. Index: see the function. Rows: one.
SELECT lanekeeper.cancel(CASE WHEN s.producer IS NOT NULL THEN $1::uuid END, $2, $3, $4) AS result
FROM (
    SELECT set_config('lanekeeper.producer',
                      coalesce($5, current_setting('lanekeeper.producer', true), ''), true) AS producer
) AS s
