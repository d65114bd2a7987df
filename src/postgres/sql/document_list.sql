-- Purpose: read a page of the documents of a kind. Index: see the function. Rows: at most $3.
SELECT d.id, d.version, d.event_type, d.seq, d.changed_at
FROM lanekeeper.list_documents($1, $2, $3) AS d
