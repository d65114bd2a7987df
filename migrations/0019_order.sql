-- Appends read the newest version of a lane's progress, and the newest event of a session, in the order of the index.
--
-- To the planner a lane has one version, since autovacuum counts no dead rows. Then the index in its order and a bitmap
-- of all versions with a sort cost the same but for rounding, and what autovacuum has just counted decides. Behind a
-- snapshot that was held for a quarter of an hour, the bitmap read 1,500 pages for each append of a hot session, for as
-- long as it took until the next count. Lane connections are without bitmaps from the start.
--
-- Figures: docs/performance.md.
ALTER FUNCTION lanekeeper.enqueue(text, text, text, jsonb, uuid, text, smallint, jsonb) SET enable_bitmapscan = off;
ALTER FUNCTION lanekeeper.enqueue_many(text, jsonb) SET enable_bitmapscan = off;
ALTER FUNCTION lanekeeper.newest_event(bigint, date) SET enable_bitmapscan = off;
