-- Purpose: pause, resume or cancel a replay. Index: replay's primary key. Rows: one.
SELECT lanekeeper.change_replay($1, $2, $3) AS state
