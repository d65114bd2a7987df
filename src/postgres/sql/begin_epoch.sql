-- Purpose: begin the server's epoch where none is, in a statement of its own so that the next one
-- sees whoever began it. Rows: one at the most.
INSERT INTO lanekeeper.server_epoch DEFAULT VALUES ON CONFLICT DO NOTHING
