-- Purpose: whether every append to a stream notifies that was followed as of transaction $1; $2 is what the last call
-- returned. Rows: one.
SELECT lanekeeper.follow_is_complete($1::text::xid8, $2::text::xid8)::text
