-- Purpose: enter what one event tells into the session registry. Not flushed on its own: what a crash
-- of the server takes, it takes together with the settlement of the same transaction, and the event
-- comes again. Rows: one.
SELECT lanekeeper.observe_hook($1, $2, $3, $4, $5) AS entered, set_config('synchronous_commit', 'off', true) AS commits
