-- For operators and dashboards: what people wrote to agents, once for each subscription that receives it, with its state
-- there: pending, processing (it is being delivered, or its acknowledgement is awaited), delivered, failed (it waits for
-- its next attempt or for an operator, or was given up), expired (its session was closed, or it was taken out otherwise: cancelled, superseded, coalesced, skipped).
-- `message_state` is the state in lanekeeper.message, which says more. `typed`, where it goes to a terminal: pasting,
-- entered, confirmed (the agent reported a prompt then), or unconfirmed.
-- Looked up by session it reads one session; without a condition it reads them all.
CREATE OR REPLACE VIEW lanekeeper.inbound_message AS
SELECT m.session, m.seq, m.message_id, m.payload ->> 'origin' AS origin, m.event_type AS message_type,
       m.payload ->> 'content' AS content, m.payload -> 'payload' AS payload,
       m.payload ->> 'actor_id' AS actor_id, m.payload ->> 'actor_name' AS actor_name,
       m.payload ->> 'actor_avatar_url' AS actor_avatar_url,
       m.payload ->> 'source_message_id' AS source_message_id, m.payload ->> 'source_channel_id' AS source_channel_id,
       m.subscription,
       CASE WHEN m.state IN ('pending', 'requeued', 'unsubscribed') THEN 'pending'
            WHEN m.state IN ('sending', 'sent') THEN 'processing'
            WHEN m.state IN ('delivered', 'acked') THEN 'delivered'
            WHEN m.state IN ('retrying', 'parked', 'failed', 'dropped') THEN 'failed'
            WHEN m.state IN ('expired', 'cancelled', 'superseded', 'coalesced', 'skipped') THEN 'expired'
            -- A state that this view does not know is not made up.
            ELSE m.state END AS state,
       m.state AS message_state, m.attempts, m.error, m.created_at, m.settled_at, i.stage AS typed
FROM lanekeeper.message AS m
LEFT JOIN lanekeeper.terminal_input AS i ON i.message_id = m.message_id AND i.subscription = m.subscription
WHERE m.stream = 'inbound' AND m.event_type IN ('text', 'voice', 'file') AND m.state <> 'filtered';
