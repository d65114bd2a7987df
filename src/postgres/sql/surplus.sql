-- Purpose: what a lane leaves out before it delivers on: expired events, and the oldest of too many. Keeps I4, I6.
-- Index: event's primary key. Rows: one.
SELECT expired_from, expired_to, dropped_from, dropped_to, day FROM lanekeeper.surplus($1, $2, $3, $4, $5, $6)
