-- For operators and dashboards: agent sessions with the names of stream and session.
CREATE OR REPLACE VIEW lanekeeper.session_registry AS
SELECT t.name AS stream, n.name AS session, a.cli, a.native_session_id, a.host, a.cwd, a.model,
       a.transcript_path, a.transcript_from, a.started_at, a.ended_at, a.last_activity, a.last_activity_at,
       a.last_prompt, a.last_prompt_at, a.last_notification, a.last_notification_at,
       a.last_error, a.last_error_code, a.last_error_at,
       a.turn_state, a.turn, a.turn_id, a.turn_started_at, a.turn_ended_at, a.turn_ended_by, a.seq,
       a.last_input, a.last_input_origin, a.last_input_at
FROM lanekeeper.agent_session AS a
JOIN lanekeeper.session AS n ON n.session_id = a.session_id
JOIN lanekeeper.stream AS t ON t.stream_id = n.stream_id;
