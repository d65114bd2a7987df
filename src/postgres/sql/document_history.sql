-- Purpose: read a page of the versions of a document. Index: see the function. Rows: at most $4.
SELECT d.version, d.deleted, d.event_type, d.message_id, d.seq, d.changed_at
FROM lanekeeper.document_history($1, $2, $3, $4) AS d
