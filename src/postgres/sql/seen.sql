-- Purpose: whether a consumer has handled a message; it is remembered otherwise. Index: seen_message's primary key. Rows: one.
SELECT lanekeeper.seen($1, $2, $3) AS seen
