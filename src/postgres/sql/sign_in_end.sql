-- Purpose: end a sign-in. Index: sign_in's primary key. Rows: at most one.
DELETE FROM lanekeeper.sign_in AS s WHERE s.hash = $1
