-- Raises LK006 where a transaction would hold more advisory locks than a quarter of the server's lock table has entries (1,000
-- at the least), with those of p_session_ids and p_others more: a full table fails the transactions of all databases.
--
-- Bulk calls add up what they lock in a setting of the transaction. pg_locks is read only where that is too much: a session
-- that several calls append to is one lock. The setting bounds mistakes: whoever may connect may fill the table by other means.
CREATE OR REPLACE FUNCTION lanekeeper.bound_append_locks(p_session_ids bigint[], p_others int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_before text := current_setting('lanekeeper.append_locks', true);
    v_most   int := greatest(1000, current_setting('max_locks_per_transaction')::int
        * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) / 4);
    v_locks  int := cardinality(p_session_ids) + p_others + CASE WHEN v_before ~ '^[0-9]{1,9}$' THEN v_before::int ELSE 0 END;
BEGIN
    IF v_locks > v_most THEN
        SELECT count(*) + p_others INTO v_locks
        FROM (
            SELECT (k.classid::bigint << 32) | k.objid::bigint AS key FROM pg_catalog.pg_locks AS k
            WHERE k.locktype = 'advisory' AND k.objsubid = 1 AND k.granted AND k.pid = pg_backend_pid()
            UNION
            SELECT lanekeeper.append_lock(u.session_id, (SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)) FROM unnest(p_session_ids) AS u (session_id)
        ) AS l;
        IF v_locks > v_most THEN
            RAISE EXCEPTION USING ERRCODE = 'LK006',
                MESSAGE = format('the transaction would lock %s sessions and may lock %s: this call enqueued nothing', v_locks, v_most),
                HINT = 'Each session is a lock in a table that all databases of the server share. Split the array and commit in between; or raise max_locks_per_transaction: a transaction may take a quarter of the table.';
        END IF;
    END IF;
    PERFORM set_config('lanekeeper.append_locks', v_locks::text, true);
END
$$;
