-- Purpose: have a closed session take appends again. Index: session's unique name. Rows: one.
SELECT lanekeeper.reopen_session($1, $2) AS reopened
