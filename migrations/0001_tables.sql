-- The log, the lanes, their progress and their tokens. No row of the hot path is ever updated:
-- see ARCHITECTURE.md, "A log, tokens, versioned progress".

CREATE SCHEMA lanekeeper;
REVOKE ALL ON SCHEMA lanekeeper FROM PUBLIC;

-- A row per migration; the highest version is the schema's.
CREATE TABLE lanekeeper.schema_version (
    version    int PRIMARY KEY,
    name       text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- A family of sessions with shared defaults. Few rows, changed only by `apply`.
CREATE TABLE lanekeeper.stream (
    stream_id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name              text NOT NULL UNIQUE,
    -- Grows whenever a subscription of the stream is added: an append compares it with the
    -- session's, so that it need not look for missing lanes at every event.
    lanes_version     bigint NOT NULL DEFAULT 0,
    max_payload_bytes int NOT NULL DEFAULT 1048576,
    -- Event types that subscriptions without a list of their own receive. NULL: all.
    fan_out           text[],
    -- Event types that are never coalesced. NULL: all.
    critical          text[],
    retry_schedule_ms int[] NOT NULL DEFAULT '{1000,2000,4000,8000,16000,32000,60000}',
    max_attempts      int NOT NULL DEFAULT 0,
    on_exhausted      text NOT NULL DEFAULT 'dead_letter',
    CONSTRAINT stream_name_is_plain CHECK (name ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    CONSTRAINT payload_limit_fits_jsonb CHECK (max_payload_bytes BETWEEN 1024 AND 268435455),
    CONSTRAINT schedule_is_not_empty CHECK (cardinality(retry_schedule_ms) > 0),
    CONSTRAINT attempts_are_not_negative CHECK (max_attempts >= 0),
    CONSTRAINT exhaustion_is_known CHECK (on_exhausted IN ('dead_letter', 'park', 'drop'))
);

-- The presets of the five seed streams. Retry figures: hooks 1 to 60 s for ever, inbound 5 to
-- 300 s for ever, messages 1 to 60 s and at most 10 attempts.
INSERT INTO lanekeeper.stream (name, max_payload_bytes, fan_out, critical, retry_schedule_ms, max_attempts)
VALUES
    ('hooks', 8388608,
     '{session_start,user_prompt_submit,agent_stop,session_end,notification,error}',
     '{session_start,user_prompt_submit,agent_stop,session_end,notification,error}',
     '{1000,2000,4000,8000,16000,32000,60000}', 0),
    ('inbound', 1048576, NULL, NULL, '{5000,10000,20000,40000,80000,160000,300000}', 0),
    ('messages', 1048576, NULL, NULL, '{1000,2000,4000,8000,16000,32000,60000}', 10),
    ('runs', 1048576, NULL, NULL, '{1000,2000,4000,8000,16000,32000,60000}', 0),
    ('documents', 1048576, NULL, NULL, '{1000,2000,4000,8000,16000,32000,60000}', 0);

-- A stream delivered to one destination. Few rows, changed only by `apply` and by operators.
CREATE TABLE lanekeeper.subscription (
    subscription_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream_id       int NOT NULL REFERENCES lanekeeper.stream,
    name            text NOT NULL,
    version         bigint NOT NULL DEFAULT 1,
    adapter         text NOT NULL,
    -- The event types that it receives. NULL: every event of the stream.
    events          text[],
    -- Where a lane of a session that existed before the subscription starts.
    start_from      text NOT NULL DEFAULT 'latest',
    -- What the adapter needs: url, secret_env, command, timeout_ms … Never a secret itself.
    settings        jsonb NOT NULL DEFAULT '{}',
    retry_schedule_ms int[] NOT NULL,
    max_attempts    int NOT NULL,
    on_exhausted    text NOT NULL,
    -- Event types that may be coalesced are those outside `critical`; false switches it off.
    coalesce        boolean NOT NULL,
    -- Lanes delivered at once by one worker.
    concurrency     int NOT NULL DEFAULT 64,
    -- Whether settled ranges are written to `history`.
    history         boolean NOT NULL DEFAULT false,
    paused_at       timestamptz,
    pause_reason    text,
    -- Removed by `apply --prune`: its lanes stay for the record and get no more tokens, and the
    -- name is free for a new one.
    removed_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT subscription_name_is_plain CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$'),
    CONSTRAINT start_is_known CHECK (start_from IN ('latest', 'earliest')),
    CONSTRAINT schedule_is_not_empty CHECK (cardinality(retry_schedule_ms) > 0),
    CONSTRAINT attempts_are_not_negative CHECK (max_attempts >= 0),
    CONSTRAINT exhaustion_is_known CHECK (on_exhausted IN ('dead_letter', 'park', 'drop')),
    CONSTRAINT concurrency_is_positive CHECK (concurrency > 0),
    CONSTRAINT pause_has_reason CHECK ((paused_at IS NULL) = (pause_reason IS NULL))
);

CREATE UNIQUE INDEX subscription_by_name ON lanekeeper.subscription (name) WHERE removed_at IS NULL;

-- Every version that a subscription ever had: the record of which events it filtered (I4).
CREATE TABLE lanekeeper.subscription_version (
    subscription_id int NOT NULL REFERENCES lanekeeper.subscription,
    version         bigint NOT NULL,
    definition      jsonb NOT NULL,
    changed_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (subscription_id, version)
);

-- The ordering key inside a stream. Written once, and again only when lanes are added to it.
CREATE TABLE lanekeeper.session (
    session_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream_id     int NOT NULL REFERENCES lanekeeper.stream,
    name          text NOT NULL,
    lanes_version bigint NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT session_name_is_bounded CHECK (octet_length(name) BETWEEN 1 AND 512),
    UNIQUE (stream_id, name)
);

-- The log. Append-only; partitions are dropped whole.
CREATE TABLE lanekeeper.event (
    session_id bigint NOT NULL,
    seq        bigint NOT NULL,
    -- Partition key: the UTC day of the append, never before the day of the session's previous
    -- event, so that the newest seq is always in the newest day.
    day        date NOT NULL,
    priority   smallint NOT NULL,
    -- Bytes of the payload as text, which is what leaves Postgres.
    size       int NOT NULL,
    created_at timestamptz NOT NULL,
    message_id uuid NOT NULL,
    event_type text NOT NULL,
    payload    jsonb NOT NULL,
    -- NULL: none.
    headers    jsonb,
    CONSTRAINT seq_starts_at_one CHECK (seq > 0),
    CONSTRAINT priority_is_bounded CHECK (priority BETWEEN -100 AND 100),
    CONSTRAINT event_type_is_bounded CHECK (octet_length(event_type) BETWEEN 1 AND 200),
    PRIMARY KEY (session_id, seq, day)
) PARTITION BY RANGE (day);

-- The last seq of sessions whose newest events were dropped with their partition.
CREATE TABLE lanekeeper.session_tail (
    session_id bigint NOT NULL,
    seq        bigint NOT NULL,
    PRIMARY KEY (session_id, seq)
);

-- What a producer called by a name of its own: a dedupe key, or a message id that it chose.
CREATE TABLE lanekeeper.dedupe (
    stream_id  int NOT NULL,
    key        text NOT NULL,
    session_id bigint NOT NULL,
    seq        bigint NOT NULL,
    message_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (stream_id, key),
    CONSTRAINT key_is_bounded CHECK (octet_length(key) BETWEEN 1 AND 600)
);
CREATE INDEX dedupe_by_age ON lanekeeper.dedupe (created_at);

-- The unit of claiming and of order: one (subscription, session). Written once.
CREATE TABLE lanekeeper.lane (
    lane_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id      bigint NOT NULL,
    subscription_id int NOT NULL,
    -- Which tokens are walked together: the subscription.
    route           int NOT NULL,
    UNIQUE (session_id, subscription_id)
);
CREATE INDEX lane_by_subscription ON lanekeeper.lane (subscription_id);

-- A lane's state is its newest version. Settling deletes the version that was read and, only if
-- that delete hit, inserts the next one (I5).
CREATE TABLE lanekeeper.progress (
    lane_id    bigint NOT NULL,
    version    bigint NOT NULL,
    -- Everything up to and including this seq is settled.
    cursor     bigint NOT NULL,
    -- No event after the cursor is in an earlier partition.
    cursor_day date NOT NULL,
    -- Failed attempts on the head, the event after the cursor.
    attempts   int NOT NULL DEFAULT 0,
    -- Workers that died while they delivered the head.
    crashes    int NOT NULL DEFAULT 0,
    -- The head is not tried before this instant; a token due then exists.
    retry_at   timestamptz,
    -- An operator, or exhaustion, holds the lane: it has no token.
    parked_at  timestamptz,
    last_error text,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lane_id, version),
    CONSTRAINT counters_are_not_negative CHECK (version >= 0 AND cursor >= 0 AND attempts >= 0 AND crashes >= 0)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- "This lane may have something to do from this moment on." Inserted and deleted, never changed.
CREATE TABLE lanekeeper.ready (
    route    int NOT NULL,
    priority smallint NOT NULL,
    due_at   timestamptz NOT NULL,
    id       bigint GENERATED ALWAYS AS IDENTITY,
    lane_id  bigint NOT NULL,
    PRIMARY KEY (route, priority, due_at, id)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The priorities that were ever used: a claim walks them from the highest.
CREATE TABLE lanekeeper.priority_level (
    priority smallint PRIMARY KEY
);
INSERT INTO lanekeeper.priority_level VALUES (0);

-- Why the cursor passed an event that was not plainly delivered (I4).
CREATE TABLE lanekeeper.outcome (
    lane_id     bigint NOT NULL,
    seq         bigint NOT NULL,
    kind        text NOT NULL,
    -- For `coalesced`: the seq of the event that went instead.
    replaced_by bigint,
    error       text,
    settled_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lane_id, seq),
    CONSTRAINT outcome_is_known CHECK (kind IN ('coalesced', 'dead_lettered', 'dropped', 'expired', 'skipped')),
    CONSTRAINT coalesced_iff_replaced CHECK ((kind = 'coalesced') = (replaced_by IS NOT NULL))
);

-- A copy of an exhausted event: it outlives the log's retention.
CREATE TABLE lanekeeper.dead (
    dead_id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane_id     bigint NOT NULL,
    seq         bigint NOT NULL,
    message_id  uuid NOT NULL,
    event_type  text NOT NULL,
    payload     jsonb NOT NULL,
    headers     jsonb,
    created_at  timestamptz NOT NULL,
    attempts    int NOT NULL,
    crashes     int NOT NULL,
    error       text NOT NULL,
    died_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What an operator did with it; NULL while it waits for one.
    resolution  text,
    resolved_at timestamptz,
    CONSTRAINT resolution_is_known CHECK (resolution IN ('requeued', 'dropped')),
    CONSTRAINT resolved_iff_resolution CHECK ((resolution IS NULL) = (resolved_at IS NULL)),
    UNIQUE (lane_id, seq, dead_id)
);
CREATE INDEX dead_unresolved ON lanekeeper.dead (dead_id) WHERE resolution IS NULL;

-- When and by whom ranges were settled, where a subscription asks for it.
CREATE TABLE lanekeeper.history (
    lane_id    bigint NOT NULL,
    from_seq   bigint NOT NULL,
    to_seq     bigint NOT NULL,
    attempts   int NOT NULL,
    worker_id  bigint NOT NULL,
    settled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (lane_id, from_seq, settled_at)
);

-- A worker process's latest heartbeat, versioned like progress.
CREATE TABLE lanekeeper.worker (
    worker_id  bigint NOT NULL,
    version    bigint NOT NULL,
    beat_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz NOT NULL,
    host       text NOT NULL,
    pid        int NOT NULL,
    release    text NOT NULL,
    state      text NOT NULL,
    PRIMARY KEY (worker_id, version),
    CONSTRAINT state_is_known CHECK (state IN ('running', 'draining'))
);
CREATE SEQUENCE lanekeeper.worker_id;

-- One row, which is gone after a crash of the server and on a promoted standby: unlogged tables are
-- emptied then. Connections remember it, so that a death of the server is not taken for a worker's.
CREATE UNLOGGED TABLE lanekeeper.server_epoch (
    single boolean PRIMARY KEY DEFAULT true,
    epoch  uuid NOT NULL DEFAULT gen_random_uuid(),
    CONSTRAINT one_row CHECK (single)
);

-- A connection whose session holds lane locks. It holds its own liveness lock too: whoever can
-- take that lock knows that the connection is gone.
CREATE TABLE lanekeeper.lane_connection (
    connection_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker_id     bigint NOT NULL,
    backend_pid   int NOT NULL,
    backend_start timestamptz NOT NULL,
    opened_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    epoch         uuid NOT NULL
);

-- What a connection took in one claim: one row for up to a hundred lanes, deleted when the last
-- of them is let go. After a crash it says whom to charge and which lanes to wake.
CREATE TABLE lanekeeper.claim (
    connection_id bigint NOT NULL,
    claim_id      bigint NOT NULL,
    claimed_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    lane_ids      bigint[] NOT NULL,
    versions      bigint[] NOT NULL,
    -- As they were at the claim. NULL for a lane whose head has outlived two workers: it is delivered
    -- alone, under a row of its own, so that it is not charged for what it shares a worker with.
    crashes       int[] NOT NULL,
    PRIMARY KEY (connection_id, claim_id)
);

-- Receivers that keep their dedupe table in this database (A8). Rows go after 7 days.
CREATE TABLE lanekeeper.seen_message (
    consumer   text NOT NULL,
    session    text NOT NULL,
    message_id uuid NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, session, message_id)
);
CREATE INDEX seen_message_by_age ON lanekeeper.seen_message (seen_at);
