-- Purpose: the names of sessions, and which of them are closed. Index: session's primary key. Rows: one for each of $1.
SELECT n.session_id, n.stream_id, n.name, n.closed_seq, n.close_reason
FROM lanekeeper.session AS n WHERE n.session_id = ANY ($1)
