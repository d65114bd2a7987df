-- Purpose: the first seq of a session that a follower of its stream lacks, whose cursor has everything of transactions below $2:
-- the one after the newest event of such a transaction. Seq order is commit order, so all before it were there too.
-- Index: event's primary key, backwards. Rows: one. It reads the events from that seq on.
SELECT coalesce((
    SELECT e.seq FROM lanekeeper.event AS e
    WHERE e.session_id = $1
      AND lanekeeper.xact_number(e.xmin, pg_snapshot_xmax(pg_current_snapshot())::text::bigint) < $2
    ORDER BY e.seq DESC LIMIT 1), 0) + 1
