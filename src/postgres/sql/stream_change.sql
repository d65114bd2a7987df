-- Purpose: have the sessions of a stream looked at again when everything is over that was open at this
-- apply and may not have seen it (I13). Rows: at most one. Index: stream_change's primary key.
INSERT INTO lanekeeper.stream_change (stream_id) VALUES ($1) ON CONFLICT DO NOTHING
