-- Purpose: whether an apply, or the close of a session, left something to finish. Rows: one out, at most three read.
SELECT EXISTS (SELECT FROM lanekeeper.stream_change) AS changes,
       EXISTS (SELECT FROM lanekeeper.closing_lane)
           OR EXISTS (SELECT FROM lanekeeper.session AS s WHERE s.draining) AS closes
