-- Purpose: read a document as it is, at one of its versions, or at an instant. Index: see the function. Rows: one.
SELECT d.version, d.body::text AS body, d.event_type, d.message_id, d.seq, d.changed_at
FROM lanekeeper.get_document($1, $2, $3, $4) AS d
