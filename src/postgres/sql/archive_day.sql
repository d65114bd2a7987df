-- Purpose: the oldest day past retention that no file has and no lane needs. Where a lane needs the oldest there
-- is none: no later one is dropped before it. Rows: at most 1.
SELECT d.day
FROM (SELECT t.day FROM lanekeeper.days_to_archive($1) AS t (day) ORDER BY t.day LIMIT 1) AS d
WHERE NOT lanekeeper.day_is_needed(d.day)
