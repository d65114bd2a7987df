-- Purpose: the next range of a lane that is replayed. Keeps I2 (the caller holds the lane). Index: replay_of_lane. Rows: one.
SELECT replay_id, subscription_id, replayed_to, from_day, to_seq, is_last, wait_ms FROM lanekeeper.next_replayed($1, $2)
