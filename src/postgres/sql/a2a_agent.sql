-- Purpose: the agent that a stream is for callers who speak A2A. Index: stream's unique name. Rows: at most one.
SELECT t.a2a FROM lanekeeper.stream AS t WHERE t.name = $1 AND t.a2a IS NOT NULL
