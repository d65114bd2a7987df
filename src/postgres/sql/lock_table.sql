-- Purpose: what part of the lock table that all sessions of the server share is for the workers of this database: its
-- entries, divided by the databases that have workers. The server makes it somewhat larger, for its own processes.
-- Rows: one. Everybody sees application names.
SELECT current_setting('max_locks_per_transaction')::bigint
       * (current_setting('max_connections')::bigint + current_setting('max_prepared_transactions')::bigint)
       / greatest(1, (SELECT count(DISTINCT a.datid) FROM pg_catalog.pg_stat_activity AS a
                      WHERE a.application_name = 'lanekeeper lanes')) AS entries
