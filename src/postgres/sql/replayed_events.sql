-- Purpose: the events of such a range. Keeps I11. Index: event's and outcome's primary keys. Rows: at most $7.
SELECT seq, day, message_id, event_type, created_at, size, payload, headers
FROM lanekeeper.replayed_events($1, $2, $3, $4, $5, $6, $7, $8)
