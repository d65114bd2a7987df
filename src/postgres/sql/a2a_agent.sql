-- Purpose: the streams that are agents for callers who speak A2A. Index: none, the table is small; each worker asks once in
-- two seconds at most. Rows: those streams.
SELECT t.name, t.a2a FROM lanekeeper.stream AS t WHERE t.a2a IS NOT NULL
