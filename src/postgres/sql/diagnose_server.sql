-- Purpose: what `doctor` needs to know of the server; the schema need not be there. Rows: one.
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS version_num,
       (SELECT pg_encoding_to_char(d.encoding) FROM pg_catalog.pg_database AS d
        WHERE d.datname = current_database())::text AS encoding,
       current_setting('fsync') AS fsync,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('autovacuum') AS autovacuum,
       current_setting('max_connections')::bigint AS max_connections,
       current_setting('superuser_reserved_connections')::bigint
           + coalesce(current_setting('reserved_connections', true), '0')::bigint AS reserved_connections,
       current_setting('max_locks_per_transaction')::bigint AS max_locks_per_transaction,
       current_setting('max_prepared_transactions')::bigint AS max_prepared_transactions,
       clock_timestamp() AS server_time,
       (SELECT count(*) FROM pg_catalog.pg_stat_activity AS a
        WHERE a.backend_type = 'client backend' AND coalesce(a.application_name, '') NOT LIKE 'lanekeeper%') AS other_connections,
       (SELECT extract(epoch FROM max(clock_timestamp() - a.xact_start))::float8
        FROM pg_catalog.pg_stat_activity AS a WHERE a.backend_type = 'client backend') AS oldest_transaction_s,
       (SELECT format('pid %s, %s, application %L', a.pid, a.state, a.application_name)
        FROM pg_catalog.pg_stat_activity AS a
        WHERE a.backend_type = 'client backend' AND a.xact_start IS NOT NULL
        ORDER BY a.xact_start LIMIT 1) AS oldest_transaction,
       (SELECT count(*) FROM pg_catalog.pg_prepared_xacts AS x) AS prepared_transactions,
       (SELECT extract(epoch FROM max(clock_timestamp() - x.prepared))::float8
        FROM pg_catalog.pg_prepared_xacts AS x) AS oldest_prepared_s,
       (SELECT count(*) FROM pg_catalog.pg_replication_slots AS s
        WHERE NOT s.active AND (s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL)) AS idle_slots,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_others
