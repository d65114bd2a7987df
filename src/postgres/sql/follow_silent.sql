-- Purpose: appends to followed streams that did not notify, of transactions from $1 on. Forgets those of the day before.
-- Rows: a few; it reads the whole table, which has a row for each append of a prepared transaction to a followed stream.
WITH forgotten AS (
    DELETE FROM lanekeeper.silent_append AS s WHERE s.appended_at < clock_timestamp() - interval '1 day'
)
SELECT s.stream_id, s.session_id FROM lanekeeper.silent_append AS s WHERE s.xact >= $1::bigint::text::xid8
