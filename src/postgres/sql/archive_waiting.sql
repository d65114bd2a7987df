-- Purpose: count days past retention that have events and no file. Rows: 1.
SELECT count(*) AS days FROM lanekeeper.days_to_archive($1)
