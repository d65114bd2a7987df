-- Acknowledges a message, in the consumer's transaction: its lane goes on from the commit on. Returns acked, already_acked,
-- or unknown: nothing waits for it, because it was never sent to a subscription that requires acknowledgements, or has
-- failed, expired or been forgotten meanwhile. None of these is an error, so that a late one harms nobody.
--
-- A message that several subscriptions sent is acknowledged for all of them, or for p_subscription.
--
-- It takes no lock but that of the message's own row, and writes that row and a ready entry: never the append lock, and
-- never progress, since this transaction may stay open. Whoever claims the lane moves its cursor over what is
-- acknowledged; an acknowledgement ahead of an earlier message that has none is remembered in its row.
-- Index: sent's primary key. Rows: one for each subscription that sent it.
CREATE OR REPLACE FUNCTION lanekeeper.ack(message_id uuid, subscription text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_result text;
BEGIN
    SELECT a.result INTO v_result
    FROM lanekeeper.ack_many(ARRAY[ack.message_id], ack.subscription) AS a;
    RETURN coalesce(v_result, 'unknown');
END
$$;
