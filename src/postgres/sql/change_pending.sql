-- Purpose: whether an apply, the close or interrupt of a session, or its move to another host left something to finish, or a replay is under way; and what workers that heard no
-- notification are to let go of: a delivery is cancelled when what waits has been passed. Rows: one out; a thousand of closing_lane at most.
-- Index: closing_lane_unfinished, closing_lane_by_age; stream_change; session_draining; host_change_by_look; replay_unfinished.
SELECT EXISTS (SELECT FROM lanekeeper.stream_change) AS changes,
       EXISTS (SELECT FROM lanekeeper.closing_lane AS c WHERE c.finished_at IS NULL)
           OR EXISTS (SELECT FROM lanekeeper.closing_lane AS c WHERE c.finished_at < clock_timestamp() - interval '1 minute')
           OR EXISTS (SELECT FROM lanekeeper.session AS s WHERE s.draining) AS closes,
       EXISTS (SELECT FROM lanekeeper.host_change AS c WHERE c.look_at <= clock_timestamp()) AS moves,
       EXISTS (SELECT FROM lanekeeper.replay AS y WHERE y.ended_at IS NULL) AS replays,
       ARRAY(
           SELECT format('%s %s %s', c.session_id, c.seq,
                         CASE WHEN c.kind = 'cancelled' THEN 'only' WHEN c.cuts THEN 'through' ELSE 'behind' END)
           FROM (
               (SELECT c.session_id, c.seq, c.kind, c.cuts FROM lanekeeper.closing_lane AS c
                WHERE c.finished_at IS NOT NULL ORDER BY c.finished_at DESC LIMIT 500)
               UNION ALL
               (SELECT c.session_id, c.seq, c.kind, c.cuts FROM lanekeeper.closing_lane AS c
                WHERE c.finished_at IS NULL AND NOT c.cuts LIMIT 500)
           ) AS c) AS interruptions
