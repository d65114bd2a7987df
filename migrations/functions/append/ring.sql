-- Wakes idle workers for the ready entries of this transaction.
--
-- A producer that gets the doorbell lock in shared mode knows that no worker waits for it, and need not notify: NOTIFY
-- serialises the commits of the whole server. A worker that is granted the doorbell after this transaction's end looks for
-- entries, so none is missed; notifications are hints all the same (I8).
-- `SET lanekeeper.notify = off` leaves the notification out, as a transaction that will be prepared needs: workers then
-- find the event at their next poll.
CREATE OR REPLACE FUNCTION lanekeeper.ring() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT pg_try_advisory_xact_lock_shared(lanekeeper.doorbell_lock((SELECT k.secret FROM lanekeeper.lock_secret AS k WHERE k.single)))
       AND coalesce(current_setting('lanekeeper.notify', true), '') <> 'off' THEN
        PERFORM pg_notify('lanekeeper', '');
    END IF;
END
$$;
