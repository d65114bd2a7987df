-- Purpose: whether an apply left something to finish. Rows: one out, at most one read.
SELECT EXISTS (SELECT FROM lanekeeper.stream_change) AS pending
