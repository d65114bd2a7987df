-- Purpose: start a replay. Index: as lanekeeper.replay_ranges. Rows: one.
SELECT lanekeeper.start_replay($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, coalesce($11, session_user)) AS replay_id
