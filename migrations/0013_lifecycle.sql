-- The lifecycle feed: what happens to destinations, subscriptions and workers, as events.
INSERT INTO lanekeeper.stream (name, max_payload_bytes, retry_schedule_ms, max_attempts)
VALUES ('lifecycle', 1048576, '{1000,2000,4000,8000,16000,32000,60000}', 0)
ON CONFLICT (name) DO NOTHING;
