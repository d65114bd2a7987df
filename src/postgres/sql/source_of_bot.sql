-- Purpose: the name of the source that asks for a bot. Index: one_source_asks_for_a_bot. Rows: one at most.
SELECT s.name FROM lanekeeper.source_poll AS p JOIN lanekeeper.source AS s ON s.source_id = p.source_id WHERE p.bot = $1
