-- Purpose: sessions of the registry, the newest first. $1: of one agent CLI, $2: whose turn is idle, running or stale,
-- $4: of these streams; NULL for all. $6: with a lower id. $5: the seconds without activity after which a running turn is stale.
-- Indexes: agent_session_running, where the scan passes running turns to find stale ones and the other way round;
-- agent_session_by_cli; and else the primary key read backwards, where most are idle. Rows: at most $3.
SELECT a.session_id FROM lanekeeper.agent_session AS a
WHERE ($1::text IS NULL OR a.cli = $1)
  AND ($2::text IS NULL
       OR a.turn_state = CASE $2 WHEN 'stale' THEN 'running' ELSE $2 END
          AND ($2 = 'idle'
               OR ($2 = 'stale') = (a.last_activity_at < clock_timestamp() - make_interval(secs => $5::int))))
  AND ($4::int[] IS NULL OR EXISTS (
      SELECT FROM lanekeeper.session AS n WHERE n.session_id = a.session_id AND n.stream_id = ANY ($4)))
  AND ($6::bigint IS NULL OR a.session_id < $6)
ORDER BY a.session_id DESC LIMIT $3
