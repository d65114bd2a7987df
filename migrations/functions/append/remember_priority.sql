-- Adds a priority to the list of those in use, which a claim reads from the highest. Priorities are never removed: there
-- are at most 201.
CREATE OR REPLACE FUNCTION lanekeeper.remember_priority(p_priority smallint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM lanekeeper.priority_level AS l WHERE l.priority = p_priority) THEN
        INSERT INTO lanekeeper.priority_level (priority) VALUES (p_priority) ON CONFLICT DO NOTHING;
    END IF;
END
$$;
