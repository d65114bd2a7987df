-- What was sent to a chat and may be edited there: the platform's own names of messages, so that whichever
-- worker has the lane next edits the message and sends no second one.

-- A row per message that was sent, not per edit. Hangs on the subscription and not on the lane: a session that
-- was put to rest and comes back still knows its messages. No foreign keys: adding one would wait for every
-- producer's open transaction. What is left of a removed subscription goes with its age, as outcomes do.
CREATE TABLE lanekeeper.sent_message (
    subscription_id int NOT NULL,
    session_id      bigint NOT NULL,
    -- Where it was sent: a chat, and a topic or thread in it.
    place           text NOT NULL,
    -- Events with one key are versions of one message.
    key             text NOT NULL,
    -- A long text is several messages.
    part            int NOT NULL,
    -- What the platform calls it.
    reference       text NOT NULL,
    sent_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (subscription_id, session_id, place, key, part),
    CONSTRAINT part_is_not_negative CHECK (part >= 0),
    CONSTRAINT sent_texts_are_bounded CHECK (
        octet_length(place) <= 1024 AND octet_length(key) <= 1024 AND octet_length(reference) <= 1024)
);

CREATE INDEX sent_message_by_age ON lanekeeper.sent_message (sent_at);

-- Forgets up to p_limit messages that were sent more than p_days days ago: what their keys say next is a new
-- message. One process at a time; for the others there is nothing to do. The caller calls again while the
-- limit was reached.
-- Index: sent_message_by_age. Rows: at most p_limit.
CREATE FUNCTION lanekeeper.forget_sent_messages(p_days int, p_limit int) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    v_before timestamptz := clock_timestamp() - p_days * interval '1 day';
    v_count  bigint;
BEGIN
    IF NOT pg_try_advisory_xact_lock(lanekeeper.housekeeping_lock(2)) THEN
        RETURN 0;
    END IF;
    DELETE FROM lanekeeper.sent_message AS m
    USING (
        SELECT x.subscription_id, x.session_id, x.place, x.key, x.part FROM lanekeeper.sent_message AS x
        WHERE x.sent_at < v_before ORDER BY x.sent_at LIMIT p_limit
    ) AS x
    WHERE m.subscription_id = x.subscription_id AND m.session_id = x.session_id AND m.place = x.place
      AND m.key = x.key AND m.part = x.part;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    RETURN v_count;
END
$$;

REVOKE ALL ON FUNCTION lanekeeper.forget_sent_messages FROM PUBLIC;
