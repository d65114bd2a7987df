-- Purpose: go on with all replays. Keeps I2, I13. Index: replay_unfinished. Rows: one.
SELECT begun, unfinished FROM lanekeeper.feed_replays()
