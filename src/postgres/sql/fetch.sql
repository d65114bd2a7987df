-- Purpose: the next events of many lanes. Keeps I9, I11.
-- Index: event's primary key; partitions before the lane's day are pruned at run time. As it stands here, of the
-- recent part of the log, which must have all days from $8 on; for lanes with an older backlog
-- src/postgres/fetch.rs puts the log itself in its place.
-- Rows: at most $5 a lane. A payload over $6 bytes, and one that the filter leaves out, stays behind: left_out is its
-- size, or -1 where it was filtered. The day is NULL where it is $8, the type where it is $9: what is NULL costs next to
-- nothing, and each column that is sent some 70 ns. So the place in $1 comes in one number with the seq, above its 47 bits:
-- those are enough for a million events a second in one session, for four years.
-- $7: the subscriptions in $4, once each: their filters are read once and not for every lane.
WITH filter AS MATERIALIZED (
    SELECT s.subscription_id, s.events FROM lanekeeper.subscription AS s WHERE s.subscription_id = ANY ($7::int[])
)
SELECT i::bigint << 47 | e.seq AS place_and_seq, nullif(e.day, $8) AS day, e.message_id, e.created_at,
       nullif(e.event_type, $9) AS event_type,
       CASE WHEN e.size <= $6 AND (f.events IS NULL OR e.event_type = ANY (f.events)) THEN e.payload END AS payload,
       CASE WHEN f.events IS NULL OR e.event_type = ANY (f.events) THEN CASE WHEN e.size > $6 THEN e.size END
            ELSE -1 END AS left_out,
       CASE WHEN f.events IS NULL OR e.event_type = ANY (f.events) THEN e.headers::text END AS headers
-- Asked here it is asked also where there is no event.
FROM generate_series(1, CASE WHEN lanekeeper.require_recent($8) THEN cardinality($1::bigint[]) END) AS i
JOIN filter AS f ON f.subscription_id = ($4::int[])[i]
CROSS JOIN LATERAL (
    SELECT e.seq, e.day, e.message_id, e.event_type, e.created_at, e.size, e.payload, e.headers
    FROM lanekeeper.recent_event AS e
    WHERE e.session_id = ($1::bigint[])[i] AND e.seq > ($2::bigint[])[i] AND e.day >= ($3::date[])[i]
    ORDER BY e.seq LIMIT $5
) AS e
