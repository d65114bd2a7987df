-- Purpose: sessions of the registry, the newest first. $1: of one agent CLI, $2: whose turn is in this
-- state, $4: of one stream; NULL for all. Indexes: agent_session_running, agent_session_by_cli, and else the
-- primary key read backwards, where most are idle. Rows: at most $3.
SELECT a.session_id FROM lanekeeper.agent_session AS a
WHERE ($1::text IS NULL OR a.cli = $1) AND ($2::text IS NULL OR a.turn_state = $2)
  AND ($4::int IS NULL OR EXISTS (
      SELECT FROM lanekeeper.session AS n WHERE n.session_id = a.session_id AND n.stream_id = $4))
ORDER BY a.session_id DESC LIMIT $3
