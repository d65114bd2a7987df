-- Purpose: whether an apply, the close of a session, or a session's move to another host left something to finish.
-- Index: host_change_by_look. Rows: one out, at most four read.
SELECT EXISTS (SELECT FROM lanekeeper.stream_change) AS changes,
       EXISTS (SELECT FROM lanekeeper.closing_lane)
           OR EXISTS (SELECT FROM lanekeeper.session AS s WHERE s.draining) AS closes,
       EXISTS (SELECT FROM lanekeeper.host_change AS c WHERE c.look_at <= clock_timestamp()) AS moves
