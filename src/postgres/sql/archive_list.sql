-- Purpose: the archive files that count, the newest day first, with how long what was restored from them is kept.
-- Index: restored_file's primary key. Rows: at most $1.
SELECT a.day, a.location, a.events, a.bytes, a.archived_at, a.dropped_at, f.restored_at, f.keep_until
FROM lanekeeper.archived_day AS a
LEFT JOIN lanekeeper.restored_file AS f ON f.sha256 = a.sha256
ORDER BY a.day DESC, a.archived_at DESC LIMIT $1
