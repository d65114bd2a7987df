-- Purpose: append what a person wrote as the next event of its session (E9), on behalf of $13; that setting ends with the
-- transaction. With $12 what is being delivered is cancelled. Keeps I1, I4, I13. Rows: one; written are those of the
-- session's lanes.
-- Setting and check are conditions of an argument: no plan can append before them.
SELECT i.message_id, i.seq, i.duplicate
FROM (
    SELECT CASE WHEN $13::text IS NULL THEN '' ELSE set_config('lanekeeper.producer', $13, true) END AS producer,
           lanekeeper.check_inbound($2, $3, $4, $5::jsonb, $6, $7, $8, $9, $10)::text AS checked
    OFFSET 0
) AS p
CROSS JOIN LATERAL lanekeeper.interrupt(
    stream => 'inbound',
    session => CASE WHEN p.producer IS NOT NULL AND p.checked IS NOT NULL THEN $1::text END,
    event_type => $4::text,
    payload => lanekeeper.inbound_payload($2, $3, $4, $5::jsonb, $6, $7, $8, $9, $10),
    cancel_running => $12::boolean,
    dedupe_key => 'inbound:' || $2::text || ':' || $9::text,
    headers => $11::jsonb) AS i
