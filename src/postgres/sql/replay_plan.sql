-- Purpose: what a replay would deliver again, in figures. Index: as lanekeeper.replay_ranges. Rows: one.
SELECT count(*) AS sessions, coalesce(sum(r.events), 0)::bigint AS events, coalesce(sum(r.bytes), 0)::bigint AS bytes,
       coalesce(max(r.events), 0) AS longest
FROM lanekeeper.replay_ranges($1, $2, $3, $4, $5, $6) AS r
