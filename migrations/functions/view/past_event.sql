-- What a replay reads: the log, and days that were restored from the archive. Nothing else reads it.
CREATE OR REPLACE VIEW lanekeeper.past_event AS
SELECT e.session_id, e.seq, e.day, e.priority, e.size, e.created_at, e.message_id, e.event_type, e.payload, e.headers
FROM lanekeeper.event AS e
UNION ALL
SELECT r.session_id, r.seq, r.day, r.priority, r.size, r.created_at, r.message_id, r.event_type, r.payload, r.headers
FROM lanekeeper.restored_event AS r;
