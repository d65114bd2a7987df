-- Purpose: append the events of several callers in one transaction, in the order given, all or none, each on behalf of its
-- producer. No lock is waited for longer than $9 says (NULL: than the connection may); the settings end with the transaction.
-- Keeps I1, I13. Rows: one per event; the caller limits them.
-- The settings are conditions of an argument: no plan can append before them.
SELECT e.message_id, e.seq, e.duplicate, u.ord
FROM (SELECT set_config('lock_timeout', coalesce($9, current_setting('lock_timeout')), true) AS lock_timeout) AS s
CROSS JOIN unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::smallint[], $8::text[], $10::text[])
    WITH ORDINALITY AS u (stream, session, event_type, payload, message_id, dedupe_key, priority, headers, producer, ord)
CROSS JOIN LATERAL lanekeeper.enqueue(
    CASE WHEN num_nulls(s.lock_timeout, set_config('lanekeeper.producer', u.producer, true)) = 0 THEN u.stream END,
    u.session, u.event_type, u.payload::jsonb, u.message_id, u.dedupe_key, u.priority, u.headers::jsonb) AS e
