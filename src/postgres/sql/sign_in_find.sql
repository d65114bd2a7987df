-- Purpose: whose sign-in it is, while it lasts. Index: sign_in's primary key. Rows: at most one.
SELECT s.token_id FROM lanekeeper.sign_in AS s WHERE s.hash = $1 AND s.expires_at > clock_timestamp()
