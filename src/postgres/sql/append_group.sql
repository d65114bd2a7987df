-- Purpose: append the events of several callers in one transaction, in the order given, all or none. No lock is waited
-- for longer than $9 says; the setting ends with the transaction. Keeps I1, I13. Rows: one per event; the caller limits
-- them.
-- The setting is a condition of an argument: no plan can append before it.
SELECT e.message_id, e.seq, e.duplicate, u.ord
FROM (SELECT set_config('lock_timeout', $9, true) AS lock_timeout) AS s
CROSS JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::smallint[], $8::text[])
    WITH ORDINALITY AS u (stream, session, event_type, payload, message_id, dedupe_key, priority, headers, ord)
CROSS JOIN LATERAL lanekeeper.enqueue(
    CASE WHEN s.lock_timeout IS NOT NULL THEN u.stream END, u.session, u.event_type, u.payload::jsonb,
    u.message_id, u.dedupe_key, u.priority, u.headers::jsonb) AS e
