-- Purpose: fill the partition of an archived day that is being restored. Rows: those of its file, as they are read.
COPY lanekeeper.restored_event (session_id, seq, day, priority, size, created_at, message_id, event_type, payload, headers)
FROM STDIN (FORMAT binary)
