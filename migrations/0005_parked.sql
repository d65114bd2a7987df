-- Lanes that wait for an operator, found without looking at the others. A settlement of a lane that
-- is not parked pays for the evaluation of the predicate and writes nothing.
CREATE INDEX progress_parked ON lanekeeper.progress (lane_id) WHERE parked_at IS NOT NULL;
