-- Purpose: when each agent CLI ($1: their names) last reported from this host ($2), by the agent registry.
-- Index: agent_session_by_cli, backwards, over at most 200 sessions of each CLI. Rows: one a CLI at most.
SELECT c.cli, max(a.last_activity_at) AS last_activity_at
FROM unnest($1::text[]) AS c (cli)
CROSS JOIN LATERAL (
    SELECT a.last_activity_at, a.host FROM lanekeeper.agent_session AS a
    WHERE a.cli = c.cli ORDER BY a.session_id DESC LIMIT 200
) AS a
WHERE a.host = $2
GROUP BY c.cli
