-- Purpose: forget messages that were sent more than $1 days ago. Index: sent_message_by_age. Rows: at most $2.
SELECT lanekeeper.forget_sent_messages($1, $2) AS forgotten
