-- Purpose: acknowledge messages (C3). Index: see the function. Rows: one for each message.
SELECT a.message_id, a.result FROM lanekeeper.ack_many($1, $2, $3) AS a
