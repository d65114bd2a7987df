-- Purpose: when a stream acknowledges the frames that arrive for it. Index: stream's unique name. Rows: at most one.
SELECT t.acknowledge FROM lanekeeper.stream AS t WHERE t.name = $1
