-- Purpose: notify this connection itself, after a snapshot: when the notification comes, those of all transactions that the
-- snapshot sees have come. Rows: one.
SELECT pg_notify('lanekeeper_follow', 'fence ' || $1)
