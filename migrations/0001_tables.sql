-- oldest-worker: 1
-- The tables: the log, the lanes, their progress and their ready entries, and what operators, maintenance and streams
-- keep. Rows of the hot path are inserted and deleted, not updated, but for progress: see functions/settle/settle.sql.

CREATE SCHEMA lanekeeper;
REVOKE ALL ON SCHEMA lanekeeper FROM PUBLIC;

-- A row per numbered migration; the highest version is the schema's.
CREATE TABLE lanekeeper.schema_version (
    version       int PRIMARY KEY,
    name          text NOT NULL,
    -- SHA-256 of the file.
    hash          text NOT NULL,
    -- Workers whose own schema version is this one or a later one may use the schema.
    oldest_worker int NOT NULL,
    applied_at    timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT workers_of_this_version_may_use_it CHECK (oldest_worker BETWEEN 1 AND version)
);

-- A row per function and view that `migrate` keeps as the program has it.
CREATE TABLE lanekeeper.schema_object (
    name         text PRIMARY KEY,
    kind         text NOT NULL,
    -- SHA-256 of its file.
    hash         text NOT NULL,
    -- MD5 of the definition as the server printed it then, and the server's major version: others print differently.
    live_hash    text NOT NULL,
    server_major int NOT NULL,
    applied_at   timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT kind_is_known CHECK (kind IN ('function', 'view'))
);

-- What the keys of advisory locks are made from (functions/lock/append_lock.sql). Nobody but the owner may read it: whoever
-- knows it can lock any session and lane.
CREATE TABLE lanekeeper.lock_secret (
    single boolean PRIMARY KEY DEFAULT true,
    secret uuid NOT NULL DEFAULT gen_random_uuid(),
    CONSTRAINT one_row CHECK (single)
);
REVOKE ALL ON lanekeeper.lock_secret FROM PUBLIC;
INSERT INTO lanekeeper.lock_secret DEFAULT VALUES;
-- The release whose functions and views the database has: one that is older would put its own back. One row.
CREATE TABLE lanekeeper.schema_release (
    single      boolean PRIMARY KEY DEFAULT true,
    -- Major, minor and patch.
    release     int[] NOT NULL,
    -- SHA-256 over all of its files.
    digest      text NOT NULL,
    migrated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT one_row CHECK (single),
    CONSTRAINT release_has_three_numbers CHECK (cardinality(release) = 3)
);

-- A family of sessions with shared defaults. Few rows, changed only by `apply`.
CREATE TABLE lanekeeper.stream (
    stream_id         int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name              text NOT NULL UNIQUE,
    -- Grows whenever a subscription of the stream is added: an append compares it with the
    -- session's, so that it need not look for missing lanes at every event.
    lanes_version     bigint NOT NULL DEFAULT 0,
    max_payload_bytes int NOT NULL DEFAULT 1048576,
    -- Appends have more to look at than the log: some subscription in force refuses what full sessions have no room for, or
    -- the stream has terminal event types, or types with a schema. Kept by `apply`.
    bounded           boolean NOT NULL DEFAULT false,
    -- Event types of which one is the last event of its session: see functions/session/end_session.sql. NULL: none.
    terminal          text[],
    -- Event types that have a schema in force in `event_schema`. NULL: none.
    judged            text[],
    -- Event types that subscriptions without a list of their own receive. NULL: all.
    fan_out           text[],
    -- Event types that are never coalesced. NULL: all.
    critical          text[],
    retry_schedule_ms int[] NOT NULL DEFAULT '{1000,2000,4000,8000,16000,32000,60000}',
    max_attempts      int NOT NULL DEFAULT 0,
    on_exhausted      text NOT NULL DEFAULT 'dead_letter',
    -- For subscriptions without a bound of their own: see subscription.max_pending. NULL: none.
    max_pending       int,
    on_full           text NOT NULL DEFAULT 'refuse',
    -- When a frame that a peer sent to this stream is acknowledged: once it is committed, or once its subscriptions have
    -- handled it.
    acknowledge       text NOT NULL DEFAULT 'on_commit',
    -- For subscriptions that say nothing of their own, where their adapter knows it: how long a delivery may take, and how many
    -- events of a session go together. NULL: the adapter's.
    timeout_ms        int,
    batch             int,
    -- The longest time between two scans of an idle worker that delivers it. NULL: the worker's.
    poll_floor_ms     int,
    -- Its events outlive the log: before their day goes they are copied to `kept_event`.
    keep_events       boolean NOT NULL DEFAULT false,
    -- The agent that it is for callers who speak A2A, as the file for `apply` says. NULL: it is none.
    a2a               jsonb,
    -- The roles that may append, beside the owner. NULL: every role that may execute enqueue(). See
    -- functions/caller/set_producers.sql.
    producers         text[],
    -- Live followers may be waiting for its events: an append probes follow_lock() then. Set by workers, see
    -- functions/follow/follow_stream.sql.
    followed          boolean NOT NULL DEFAULT false,
    CONSTRAINT stream_name_is_plain CHECK (name ~ '^[a-z][a-z0-9_.-]{0,62}$'),
    CONSTRAINT payload_limit_fits_jsonb CHECK (max_payload_bytes BETWEEN 1024 AND 268435455),
    CONSTRAINT schedule_is_not_empty CHECK (cardinality(retry_schedule_ms) > 0),
    CONSTRAINT attempts_are_not_negative CHECK (max_attempts >= 0),
    CONSTRAINT exhaustion_is_known CHECK (on_exhausted IN ('dead_letter', 'park', 'drop')),
    CONSTRAINT bound_is_positive CHECK (max_pending > 0),
    CONSTRAINT fullness_is_known CHECK (on_full IN ('refuse', 'drop_oldest')),
    CONSTRAINT frame_acknowledgement_is_known CHECK (acknowledge IN ('on_commit', 'on_handled')),
    CONSTRAINT timeout_is_bounded CHECK (timeout_ms BETWEEN 1 AND 3600000),
    CONSTRAINT batch_is_bounded CHECK (batch BETWEEN 1 AND 100),
    CONSTRAINT poll_floor_is_bounded CHECK (poll_floor_ms BETWEEN 10 AND 60000),
    CONSTRAINT terminal_is_bounded CHECK (terminal IS NULL OR bounded AND cardinality(terminal) BETWEEN 1 AND 100),
    CONSTRAINT judged_is_bounded CHECK (judged IS NULL OR bounded AND cardinality(judged) BETWEEN 1 AND 100),
    CONSTRAINT agent_is_an_object CHECK (jsonb_typeof(a2a) = 'object')
);

-- The JSON Schema of an event type, and those that it had: the one in force is that of the highest version. Appends are
-- checked against it, see functions/event_schema/check_schema.sql. Written by `apply`; producers neither read nor write it.
CREATE TABLE lanekeeper.event_schema (
    stream_id  int NOT NULL REFERENCES lanekeeper.stream,
    event_type text NOT NULL,
    version    bigint NOT NULL,
    -- As the file has it. NULL: it was taken away.
    schema     jsonb,
    -- What `apply` makes of it: `schema` without annotations and with patterns in PostgreSQL's dialect, and `refs`, the
    -- targets of its references.
    rules      jsonb,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream_id, event_type, version),
    CONSTRAINT event_type_is_short CHECK (octet_length(event_type) BETWEEN 1 AND 200),
    CONSTRAINT version_is_positive CHECK (version > 0),
    CONSTRAINT schema_and_its_rules_go_together CHECK ((schema IS NULL) = (rules IS NULL)),
    CONSTRAINT rules_are_complete CHECK (rules ?& '{schema,refs}')
);
REVOKE ALL ON lanekeeper.event_schema FROM PUBLIC;

-- The presets of the five seed streams, and of the lifecycle feed: what happens to destinations, subscriptions and
-- workers, as events. Retry figures: hooks 1 to 60 s for ever, inbound 5 to 300 s for ever, messages 1 to 60 s and at
-- most 10 attempts.
INSERT INTO lanekeeper.stream (name, max_payload_bytes, fan_out, critical, retry_schedule_ms, max_attempts)
VALUES
    -- `user_input` is what was typed into the agent's terminal: see functions/terminal/announce_input.sql.
    -- `session_end` is for the agent registry: it comes after the end of the turn, or in its place.
    ('hooks', 8388608,
     '{session_start,user_prompt_submit,user_input,agent_stop,notification,error}',
     '{session_start,user_prompt_submit,user_input,agent_stop,session_end,notification,error}',
     '{1000,2000,4000,8000,16000,32000,60000}', 0),
    -- A content of 1 MiB has six times as many bytes in JSON where all of them are control characters.
    ('inbound', 8388608, NULL, NULL, '{5000,10000,20000,40000,80000,160000,300000}', 0),
    ('messages', 1048576, NULL, NULL, '{1000,2000,4000,8000,16000,32000,60000}', 10),
    ('runs', 1048576, NULL, NULL, '{1000,2000,4000,8000,16000,32000,60000}', 0),
    ('documents', 1048576, NULL, NULL, '{1000,2000,4000,8000,16000,32000,60000}', 0),
    ('lifecycle', 1048576, NULL, NULL, '{1000,2000,4000,8000,16000,32000,60000}', 0);
-- How long a delivery may take, how many events go together, how soon a missed notification is made up for: what the
-- streams are known for.
UPDATE lanekeeper.stream SET timeout_ms = 30000, batch = 25, poll_floor_ms = 1000 WHERE name = 'hooks';
UPDATE lanekeeper.stream SET timeout_ms = 300000 WHERE name = 'inbound';
UPDATE lanekeeper.stream SET batch = 50 WHERE name = 'messages';
UPDATE lanekeeper.stream SET batch = 100, poll_floor_ms = 200 WHERE name = 'runs';
-- An agent that has stopped reading is told to those that write to it.
UPDATE lanekeeper.stream SET max_pending = 1000 WHERE name = 'messages';
-- The engine alone says what happened to it.
UPDATE lanekeeper.stream SET producers = '{}' WHERE name = 'lifecycle';

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
    -- What tells that a message was handled. none: that the destination accepted it. response: its answer must say so.
    -- required: an acknowledgement, in the answer or later, up to ack_timeout_ms after the send; then it is sent again.
    ack             text NOT NULL DEFAULT 'none',
    ack_timeout_ms  int NOT NULL DEFAULT 30000,
    -- How many events of a lane may wait for their acknowledgements at once.
    ack_window      int NOT NULL DEFAULT 1,
    -- Whether its lanes belong to the hosts of their sessions: see host_route. Never changed: lanes hang on it.
    host_bound      boolean NOT NULL DEFAULT false,
    -- How many undelivered events a session may have. NULL: any number. refuse: an append beyond it fails with LK001.
    -- drop_oldest: before the lane delivers, its oldest events go, with the outcome `dropped`.
    max_pending     int,
    on_full         text NOT NULL DEFAULT 'refuse',
    -- An event that is older when its turn comes gets the outcome `expired`. NULL: none does.
    max_age_ms      int,
    -- What the lifecycle feed is told of its messages. NULL: nothing.
    lifecycle       text[],
    paused_at       timestamptz,
    pause_reason    text,
    -- Removed by `apply --prune`: its lanes stay for the record and get no more ready entries, and
    -- the name is free for a new one.
    removed_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT subscription_name_is_plain CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$'),
    CONSTRAINT start_is_known CHECK (start_from IN ('latest', 'earliest')),
    CONSTRAINT schedule_is_not_empty CHECK (cardinality(retry_schedule_ms) > 0),
    CONSTRAINT attempts_are_not_negative CHECK (max_attempts >= 0),
    CONSTRAINT exhaustion_is_known CHECK (on_exhausted IN ('dead_letter', 'park', 'drop')),
    CONSTRAINT concurrency_is_positive CHECK (concurrency > 0),
    CONSTRAINT ack_is_known CHECK (ack IN ('none', 'response', 'required')),
    CONSTRAINT ack_timeout_is_positive CHECK (ack_timeout_ms > 0),
    CONSTRAINT ack_window_is_bounded CHECK (ack_window BETWEEN 1 AND 50),
    CONSTRAINT bound_is_positive CHECK (max_pending > 0),
    CONSTRAINT fullness_is_known CHECK (on_full IN ('refuse', 'drop_oldest')),
    CONSTRAINT max_age_is_positive CHECK (max_age_ms > 0),
    CONSTRAINT lifecycle_is_known CHECK (
        lifecycle <@ '{sent,acked,retried,failed,expired,dropped}' AND cardinality(lifecycle) > 0),
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

-- What platforms send requests to (POST /v1/sources/NAME), and those that workers ask. Few rows, changed only by `apply`. No
-- secrets: only their names.
CREATE TABLE lanekeeper.source (
    source_id  int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL,
    version    bigint NOT NULL,
    definition jsonb NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT source_name_is_unique UNIQUE (name),
    CONSTRAINT source_name_is_an_origin CHECK (name ~ '^[a-z][a-z0-9_.-]{0,62}$')
);

-- Every version that a source ever had; NULL: it was removed.
CREATE TABLE lanekeeper.source_version (
    name       text NOT NULL,
    version    bigint NOT NULL,
    definition jsonb,
    changed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (name, version)
);

-- Where the worker stands that asks a source's platform: the holder of source_lock(). A row for each source with `poll`.
CREATE TABLE lanekeeper.source_poll (
    source_id     int PRIMARY KEY REFERENCES lanekeeper.source ON DELETE CASCADE,
    -- The platform's own name of the bot. NULL: it was not asked yet.
    bot           text,
    -- The first update that is not taken yet, and when it was moved. NULL: none was taken.
    next_update   bigint,
    moved_at      timestamptz,
    -- The holder's connection, and its last sign of life. What is older than some seconds is ended by another worker.
    worker_id     bigint NOT NULL,
    backend_pid   int NOT NULL,
    backend_start timestamptz NOT NULL,
    alive_at      timestamptz NOT NULL,
    -- Why nothing is taken. NULL: nothing is wrong.
    problem       text,
    -- Of Discord's gateway: the id and the address of the session behind next_update. NULL: there is none.
    resume        jsonb,
    CONSTRAINT resume_is_bounded CHECK (octet_length(resume::text) <= 4000),
    CONSTRAINT resume_has_an_update CHECK (resume IS NULL OR next_update IS NOT NULL),
    CONSTRAINT one_source_asks_for_a_bot UNIQUE (bot),
    CONSTRAINT moved_iff_update CHECK ((next_update IS NULL) = (moved_at IS NULL)),
    CONSTRAINT problem_is_bounded CHECK (octet_length(problem) <= 2000)
) WITH (fillfactor = 50);

-- The ordering key inside a stream. Written once, again when lanes are added or removed, and by the first append of
-- a day.
CREATE TABLE lanekeeper.session (
    session_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream_id     int NOT NULL REFERENCES lanekeeper.stream,
    name          text NOT NULL,
    -- The stream's at the time when lanes were last added. -1: expiring, the lanes are about to go. -2: dormant, they
    -- are gone. See functions/maintenance/expire_sessions.sql. -3: the session was closed. A closed session never has the
    -- stream's, so that an append needs no column more to see that something is to be looked at.
    lanes_version bigint NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The day of the session's newest event, written by the first append of a day. NULL where it is not known; later
    -- than the newest event only where there is none at all.
    newest_day    date,
    -- Since when it takes no appends (functions/session/close_session.sql), the seq of its newest event then, and why.
    closed_at     timestamptz,
    closed_seq    bigint,
    close_reason  text,
    -- Closed with `drain`: its lanes still deliver what is there.
    draining      boolean NOT NULL DEFAULT false,
    CONSTRAINT session_name_is_bounded CHECK (octet_length(name) BETWEEN 1 AND 512),
    CONSTRAINT close_reason_is_bounded CHECK (octet_length(close_reason) <= 2000),
    CONSTRAINT closed_iff_seq CHECK ((closed_at IS NULL) = (closed_seq IS NULL)),
    CONSTRAINT closed_has_no_lanes_version CHECK (closed_at IS NULL OR lanes_version < 0),
    CONSTRAINT only_closed_drains CHECK (closed_at IS NOT NULL OR NOT draining),
    UNIQUE (stream_id, name)
);
CREATE INDEX session_draining ON lanekeeper.session (session_id) WHERE draining;

-- Sessions that are closed: an append whose snapshot is from before the close meets the row all the same. See
-- functions/append/refuse_stale_snapshot.sql.
CREATE TABLE lanekeeper.closed_session (
    session_id bigint PRIMARY KEY
);

-- What holders of lanes are to let go of: lanes that were held when their session was closed or interrupted, or an event of
-- theirs cancelled. See functions/session/finish_closing.sql.
CREATE TABLE lanekeeper.closing_lane (
    lane_id     bigint NOT NULL,
    session_id  bigint NOT NULL,
    -- What the lane has not settled up to this seq is passed with the outcome `kind`. `cancelled`: of this event alone, and
    -- by its holder.
    seq         bigint NOT NULL,
    -- Of the event with that seq, or a later day.
    day         date NOT NULL,
    kind        text NOT NULL DEFAULT 'expired',
    -- Whether the delivery that is under way is cancelled. Where not, it ends by itself, and only then is the rest passed.
    cuts        boolean NOT NULL DEFAULT true,
    reason      text,
    -- Workers that hear no notification read it at the poll floor, and therefore for a minute after it is finished.
    finished_at timestamptz,
    PRIMARY KEY (lane_id, seq, kind),
    CONSTRAINT closing_kind_is_known CHECK (kind IN ('expired', 'superseded', 'cancelled'))
);
CREATE INDEX closing_lane_by_session ON lanekeeper.closing_lane (session_id);
CREATE INDEX closing_lane_unfinished ON lanekeeper.closing_lane (lane_id) WHERE finished_at IS NULL;
CREATE INDEX closing_lane_by_age ON lanekeeper.closing_lane (finished_at) WHERE finished_at IS NOT NULL;

-- The log. Append-only; partitions are dropped whole. Only enqueue() and enqueue_many() insert: they see to it that seq grows
-- from 1 without a gap, that priority is between -100 and 100, and that event_type has 1 to 200 bytes. No CHECK constraints
-- say so, because an INSERT parses them anew every time: docs/performance-history.md.
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
    -- The JSON as the text that leaves Postgres: rendered once, by the append, and not by every fetch.
    payload    text NOT NULL,
    -- NULL: none.
    headers    jsonb,
    PRIMARY KEY (session_id, seq, day)
) PARTITION BY RANGE (day);

-- The recent partitions, and the day on which they begin. State, not code: move_recent() replaces both views every
-- night. Whoever reads both reads `recent_since` first.
CREATE VIEW lanekeeper.recent_since AS SELECT '2000-01-01'::date AS since;
CREATE VIEW lanekeeper.recent_event AS
SELECT e.session_id, e.seq, e.day, e.priority, e.size, e.created_at, e.message_id, e.event_type, e.payload, e.headers
FROM lanekeeper.event AS e WHERE e.day >= '2000-01-01'::date;

-- Appends to followed streams that did not notify, because their transactions will be prepared (`lanekeeper.notify = off`).
-- Live followers look here before they take a commit horizon for reached. Rows go after a day.
CREATE TABLE lanekeeper.silent_append (
    session_id  bigint NOT NULL,
    xact        xid8 NOT NULL DEFAULT pg_current_xact_id(),
    stream_id   int NOT NULL,
    appended_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session_id, xact)
);

-- The last seq of sessions whose newest events were dropped with their partition.
CREATE TABLE lanekeeper.session_tail (
    session_id bigint NOT NULL,
    seq        bigint NOT NULL,
    PRIMARY KEY (session_id, seq)
);

-- What a producer called by a name of its own: a dedupe key, or a message id that it chose.
CREATE TABLE lanekeeper.dedupe (
    stream_id  int NOT NULL,
    -- Whose key it is: see functions/caller/producer.sql. The empty name for random message ids, which are everybody's.
    producer   text NOT NULL DEFAULT '',
    key        text NOT NULL,
    session_id bigint NOT NULL,
    seq        bigint NOT NULL,
    message_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (stream_id, producer, key),
    CONSTRAINT key_is_bounded CHECK (octet_length(key) BETWEEN 1 AND 600)
);
CREATE INDEX dedupe_by_age ON lanekeeper.dedupe (created_at);

-- Sessions that were created, deleted or written with a producer's numbers over the Durable Streams protocol: what the
-- protocol knows of a stream and a session does not. See functions/durable/. A session without a row is a stream of JSON.
CREATE TABLE lanekeeper.durable_stream (
    session_id   bigint PRIMARY KEY,
    -- As the client gave it.
    content_type text NOT NULL DEFAULT 'application/json',
    -- What is before is of a stream that was there under the same name, and was deleted or expired.
    first_seq    bigint NOT NULL DEFAULT 1,
    -- It expires when nobody has read or written it for so long.
    ttl_seconds  bigint,
    expires_at   timestamptz,
    used_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The last Stream-Seq.
    writer_seq   text COLLATE "C",
    -- The protocol closed the session, so the protocol may open it again for a stream of the same name.
    closed_here  boolean NOT NULL DEFAULT false,
    -- The producer that closed it, with its epoch and seq: its retry is no conflict.
    closed_by    text,
    closed_epoch bigint,
    closed_seq   bigint,
    deleted_at   timestamptz,
    CONSTRAINT content_type_is_bounded CHECK (octet_length(content_type) BETWEEN 1 AND 200),
    CONSTRAINT first_seq_starts_at_one CHECK (first_seq > 0),
    CONSTRAINT one_expiry CHECK (num_nonnulls(ttl_seconds, expires_at) <= 1),
    CONSTRAINT writer_seq_is_bounded CHECK (octet_length(writer_seq) BETWEEN 1 AND 256)
);

-- Where each idempotent producer of such a stream stands. At most 1,000 of a stream: see functions/durable/append_durable.sql.
CREATE TABLE lanekeeper.durable_producer (
    session_id  bigint NOT NULL,
    producer_id text COLLATE "C" NOT NULL,
    epoch       bigint NOT NULL,
    seq         bigint NOT NULL,
    used_at     timestamptz NOT NULL,
    PRIMARY KEY (session_id, producer_id),
    CONSTRAINT producer_id_is_bounded CHECK (octet_length(producer_id) BETWEEN 1 AND 256),
    CONSTRAINT numbers_are_not_negative CHECK (epoch >= 0 AND seq >= 0)
);
CREATE INDEX durable_producer_by_age ON lanekeeper.durable_producer (used_at);

-- Events of streams with `keep_events` whose day left the log, or is about to. Append-only: copied by
-- functions/aggregate/keep_events.sql, read together with the log by functions/aggregate/session_events.sql.
CREATE TABLE lanekeeper.kept_event (
    session_id bigint NOT NULL,
    seq        bigint NOT NULL,
    created_at timestamptz NOT NULL,
    message_id uuid NOT NULL,
    event_type text NOT NULL,
    payload    text NOT NULL,
    -- NULL: none.
    headers    jsonb,
    PRIMARY KEY (session_id, seq)
);

-- What the events of a session come to, folded up to a seq by a program's type. A snapshot saves time and is never needed:
-- a program whose fold or state changed has another schema version, and finds none of the older ones.
CREATE TABLE lanekeeper.aggregate_snapshot (
    session_id     bigint NOT NULL,
    aggregate      text COLLATE "C" NOT NULL,
    schema_version int NOT NULL,
    -- The last event that is in it.
    seq            bigint NOT NULL,
    -- That event's day: later ones are in this partition of the log or in later ones.
    day            date NOT NULL,
    -- JSON text, as the program wrote it.
    state          text NOT NULL,
    taken_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (session_id, aggregate, schema_version, seq),
    CONSTRAINT aggregate_is_a_name CHECK (octet_length(aggregate) BETWEEN 1 AND 100),
    CONSTRAINT seq_starts_at_one CHECK (seq > 0)
);

-- Documents that are there: a row from its creation to its deletion. An update does not touch it. A document is a session
-- `kind/id` of the stream `documents`.
CREATE TABLE lanekeeper.document (
    session_id bigint PRIMARY KEY,
    kind       text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    UNIQUE (kind, id),
    CONSTRAINT kind_is_a_name CHECK (octet_length(kind) BETWEEN 1 AND 100 AND strpos(kind, '/') = 0),
    CONSTRAINT id_is_bounded CHECK (octet_length(id) BETWEEN 1 AND 400)
);

-- Every version of a document; the newest is what it is now, and stays. Numbers go on after a deletion, so that one that is
-- created again is not taken for the one that was there. Superseded versions go with their age: see
-- functions/document/forget_document_versions.sql.
CREATE TABLE lanekeeper.document_version (
    session_id bigint NOT NULL,
    version    bigint NOT NULL,
    -- Grows with the version.
    changed_at timestamptz NOT NULL,
    -- The event that was appended with it.
    seq        bigint NOT NULL,
    message_id uuid NOT NULL,
    event_type text NOT NULL,
    -- NULL: deleted.
    body       jsonb,
    PRIMARY KEY (session_id, version),
    CONSTRAINT version_starts_at_one CHECK (version > 0)
);
CREATE INDEX document_version_by_age ON lanekeeper.document_version (changed_at, session_id);

-- Up to where versions have been looked at for what they superseded.
CREATE TABLE lanekeeper.document_round (
    single     boolean PRIMARY KEY DEFAULT true,
    changed_at timestamptz NOT NULL DEFAULT '-infinity',
    session_id bigint NOT NULL DEFAULT 0,
    CONSTRAINT one_row CHECK (single)
);
INSERT INTO lanekeeper.document_round DEFAULT VALUES;

-- The unit of claiming and of order: one (subscription, session). Written once.
CREATE TABLE lanekeeper.lane (
    lane_id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id      bigint NOT NULL,
    subscription_id int NOT NULL,
    -- Which ready entries are scanned together: the subscription's id, or a route of host_route, which is below zero.
    route           int NOT NULL,
    -- Whether every event may wake the lane. True where its subscription had no filter when the lane was made, and never
    -- set again; `apply` takes it away where a filter changes. See functions/append/enqueue.sql.
    plain           boolean NOT NULL DEFAULT false,
    UNIQUE (session_id, subscription_id)
);
CREATE INDEX lane_by_subscription ON lanekeeper.lane (subscription_id);

-- Routes of subscriptions whose lanes belong to hosts. A worker scans those of its own host and those without one, so what
-- waits for other hosts costs it nothing. All ids are below zero: those of other lanes are their subscriptions'.
CREATE TABLE lanekeeper.host_route (
    route           int GENERATED ALWAYS AS IDENTITY (START WITH -1 INCREMENT BY -1 MINVALUE -2147483648 MAXVALUE -1) PRIMARY KEY,
    subscription_id int NOT NULL,
    -- Empty: of sessions whose host is not known; every worker may take their lanes. A slash: of lanes that are on their way
    -- to a host that has no route yet; no worker takes them.
    host            text NOT NULL,
    CONSTRAINT host_is_bounded CHECK (octet_length(host) <= 255),
    UNIQUE (subscription_id, host)
);

-- The hosts that operators bound sessions to. They stand over those of the agent registry.
CREATE TABLE lanekeeper.session_host (
    stream_id int NOT NULL,
    session   text NOT NULL,
    host      text NOT NULL,
    bound_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT host_is_a_label CHECK (octet_length(host) BETWEEN 1 AND 255),
    PRIMARY KEY (stream_id, session)
);

-- Sessions whose host may have changed: their lanes are to be moved to its routes. See functions/host/finish_moving.sql.
CREATE TABLE lanekeeper.host_change (
    change_id  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Its name, in whatever stream it is.
    session    text NOT NULL,
    xact       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- Every snapshot sees the change, and what was written by an older one is written by a transaction before this one.
    barrier    xid8,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    look_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX host_change_by_look ON lanekeeper.host_change (look_at);

-- A lane's state is its newest version. Every change is a compare-and-set on version + step (I5): see
-- functions/settle/settle.sql.
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
    -- The head is not tried before this instant; a ready entry due then exists.
    retry_at   timestamptz,
    -- An operator, or exhaustion, holds the lane: it has no ready entry.
    parked_at  timestamptz,
    last_error text,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The least after_seq of the lane's requeued dead letters; -1: it is replayed. NULL: neither.
    requeued_after bigint,
    -- From 0 to 15: settlements since the version began.
    step       smallint NOT NULL DEFAULT 0,
    -- Of a lane that waits for acknowledgements: events up to this seq were sent, and the first that is not acknowledged is
    -- sent again at ack_due_at; a ready entry due then exists. NULL: it waits for none.
    sent       bigint,
    ack_due_at timestamptz,
    CONSTRAINT sent_iff_due CHECK ((sent IS NULL) = (ack_due_at IS NULL)),
    PRIMARY KEY (lane_id, version),
    CONSTRAINT counters_are_not_negative CHECK (version >= 0 AND cursor >= 0 AND attempts >= 0 AND crashes >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- To the planner, which counts no dead rows, a lane would have one version, and a bitmap of all its versions with a sort
-- would cost the same as the index in its order. With fifty versions the first entry of the index is the cheapest by far.
ALTER TABLE lanekeeper.progress ALTER COLUMN lane_id SET (n_distinct = -0.02);
-- Lanes that wait for an operator. A settlement of a lane that is not parked evaluates the predicate and writes nothing.
CREATE INDEX progress_parked ON lanekeeper.progress (lane_id) WHERE parked_at IS NOT NULL;

-- Ready entries: "this lane may have something to do from this moment on". Inserted and deleted, never updated.
CREATE TABLE lanekeeper.ready (
    route    int NOT NULL,
    priority smallint NOT NULL,
    due_at   timestamptz NOT NULL,
    id       bigint GENERATED ALWAYS AS IDENTITY,
    lane_id  bigint NOT NULL,
    -- What a claim would look up in lane and session. NULL where the writer of the entry did not know it.
    session_id bigint,
    session    text,
    -- For a lane that was idle: every event that it has not settled is of this day or a later one, however old its
    -- cursor is. NULL where that is not known.
    day        date,
    -- The ctid of the lane's progress when the entry was made, a hint. NULL where that is not known.
    progress_ctid tid,
    PRIMARY KEY (route, priority, due_at, id)
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- The priorities that were ever used: a claim reads them from the highest.
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
    -- One row for a range, from seq to this one. NULL: for one event.
    to_seq      bigint,
    PRIMARY KEY (lane_id, seq),
    CONSTRAINT outcome_is_known CHECK (kind IN (
        'cancelled', 'coalesced', 'dead_lettered', 'dropped', 'expired', 'skipped', 'superseded')),
    CONSTRAINT coalesced_iff_replaced CHECK ((kind = 'coalesced') = (replaced_by IS NOT NULL)),
    CONSTRAINT range_has_its_kinds CHECK (to_seq IS NULL OR kind IN ('dropped', 'expired', 'superseded') AND to_seq > seq)
);
CREATE INDEX outcome_by_age ON lanekeeper.outcome (settled_at);
CREATE INDEX outcome_range ON lanekeeper.outcome (lane_id, seq) WHERE to_seq IS NOT NULL;

-- Messages of subscriptions that require acknowledgements, by their ids: written before the first send, so that an
-- acknowledgement finds it however soon it comes. One that was not acknowledged goes when the cursor passes it; the others
-- stay for a while, so that a repeated acknowledgement is told so.
CREATE TABLE lanekeeper.sent (
    message_id uuid NOT NULL,
    lane_id    bigint NOT NULL,
    seq        bigint NOT NULL,
    sent_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    acked_at   timestamptz,
    PRIMARY KEY (message_id, lane_id)
);
CREATE UNIQUE INDEX sent_of_lane ON lanekeeper.sent (lane_id, seq);
CREATE INDEX sent_by_age ON lanekeeper.sent (acked_at) WHERE acked_at IS NOT NULL;

-- Requests to other agents whose answers somebody waits for, and where the answers are. Written by whoever waits, before the
-- request can be answered; kept for a day, so that a repeated wait finds its answer.
CREATE TABLE lanekeeper.awaited_response (
    -- Its sender chooses it, so two streams may have the same.
    request_id uuid NOT NULL,
    -- The request's: the peers of its subscriptions may answer, and nobody else; and whoever waits for an answer to it gets
    -- only what answers this stream's.
    stream_id  int NOT NULL,
    asked_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The event that answers.
    session_id bigint,
    seq        bigint,
    PRIMARY KEY (request_id, stream_id),
    CONSTRAINT answer_is_whole CHECK ((session_id IS NULL) = (seq IS NULL))
);
CREATE INDEX awaited_response_by_age ON lanekeeper.awaited_response (asked_at);

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
    requeued_at timestamptz,
    -- It is delivered before the first event behind this seq. NULL: it is not to be delivered.
    after_seq   bigint,
    CONSTRAINT resolution_is_known CHECK (resolution IN ('requeued', 'dropped')),
    CONSTRAINT resolved_iff_resolution CHECK ((resolution IS NULL) = (resolved_at IS NULL)),
    CONSTRAINT requeued_iff_placed CHECK ((requeued_at IS NULL) = (after_seq IS NULL)),
    CONSTRAINT resolved_is_not_requeued CHECK (resolution IS NULL OR after_seq IS NULL),
    UNIQUE (lane_id, seq, dead_id)
);
CREATE INDEX dead_unresolved ON lanekeeper.dead (dead_id) WHERE resolution IS NULL;
CREATE INDEX dead_resolved ON lanekeeper.dead (resolved_at) WHERE resolution IS NOT NULL;
CREATE INDEX dead_requeued ON lanekeeper.dead (lane_id, after_seq, seq, dead_id) WHERE after_seq IS NOT NULL;

-- Past events of one subscription that are delivered again, in their lanes and before what those have not delivered yet.
-- See functions/replay/feed_replays.sql.
CREATE TABLE lanekeeper.replay (
    replay_id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription_id int NOT NULL,
    -- What was asked for: a session, or a pattern in which * stands for any characters; NULL: all.
    sessions        text,
    from_seq        bigint,
    to_seq          bigint,
    from_at         timestamptz,
    to_at           timestamptz,
    -- Events by all workers together, as `limit` of a subscription is written, and the time of one. NULL: no limit.
    rate            text,
    interval_us     bigint,
    -- When the next event is due at that rate.
    next_at         timestamptz NOT NULL DEFAULT '-infinity',
    -- Lanes that are replayed at once.
    concurrency     int NOT NULL,
    reason          text,
    -- What it was for when it began: lanes, events, and bytes of their payloads.
    lanes           bigint NOT NULL DEFAULT 0,
    events          bigint NOT NULL DEFAULT 0,
    bytes           bigint NOT NULL DEFAULT 0,
    -- Of lanes that have no row any more: how many came to their end, and what was accepted and exhausted in all of them.
    lanes_done      bigint NOT NULL DEFAULT 0,
    delivered       bigint NOT NULL DEFAULT 0,
    exhausted       bigint NOT NULL DEFAULT 0,
    started_by      text NOT NULL DEFAULT session_user,
    started_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_at       timestamptz,
    -- How it ends; its lanes are let go of first.
    ending          text,
    end_reason      text,
    ended_at        timestamptz,
    CONSTRAINT pattern_is_bounded CHECK (octet_length(sessions) BETWEEN 1 AND 2000),
    CONSTRAINT rate_has_its_interval CHECK ((rate IS NULL) = (interval_us IS NULL) AND interval_us > 0),
    CONSTRAINT concurrency_is_bounded CHECK (concurrency BETWEEN 1 AND 1000),
    CONSTRAINT texts_are_bounded CHECK (octet_length(reason) <= 2000 AND octet_length(end_reason) <= 2000),
    CONSTRAINT ending_is_known CHECK (ending IN ('done', 'cancelled', 'removed')),
    CONSTRAINT ended_has_ending CHECK (ended_at IS NULL OR ending IS NOT NULL)
);
CREATE INDEX replay_unfinished ON lanekeeper.replay (replay_id) WHERE ended_at IS NULL;
CREATE INDEX replay_by_end ON lanekeeper.replay (ended_at) WHERE ended_at IS NOT NULL;

-- The lanes of replays that are not finished, each with the range of seqs that is delivered again. Written under the lane's
-- lock, or with its progress locked.
CREATE TABLE lanekeeper.replay_lane (
    replay_id    bigint NOT NULL,
    lane_id      bigint NOT NULL,
    -- Everything up to and including this seq is replayed; the last is to_seq.
    replayed_to  bigint NOT NULL,
    -- No event after it is in an earlier partition.
    from_day     date NOT NULL,
    to_seq       bigint NOT NULL,
    -- At a rate: what may be delivered, and when.
    granted_to   bigint,
    granted_at   timestamptz,
    delivered    bigint NOT NULL DEFAULT 0,
    exhausted    bigint NOT NULL DEFAULT 0,
    -- waiting: for its turn. active: its progress has requeued_after -1. done: at its end. cut: it was ended before.
    state        text NOT NULL DEFAULT 'waiting',
    PRIMARY KEY (replay_id, lane_id),
    CONSTRAINT state_is_known CHECK (state IN ('waiting', 'active', 'done', 'cut')),
    CONSTRAINT something_is_replayed CHECK (replayed_to >= 0 AND to_seq > 0),
    CONSTRAINT granted_iff_due CHECK ((granted_to IS NULL) = (granted_at IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX replay_of_lane ON lanekeeper.replay_lane (lane_id) WHERE state IN ('waiting', 'active');
CREATE INDEX replay_lane_waiting ON lanekeeper.replay_lane (replay_id, lane_id) WHERE state = 'waiting';
CREATE INDEX replay_lane_active ON lanekeeper.replay_lane (replay_id, lane_id) WHERE state = 'active';

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
CREATE INDEX history_by_age ON lanekeeper.history (settled_at);

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

-- What each worker last said of each subscription that is in force. Written by the worker's control connection, and only
-- where it changes: never by a delivery. A report counts while its worker's heartbeat does; whoever removes a worker's row
-- removes its reports.
CREATE TABLE lanekeeper.subscription_report (
    worker_id       bigint NOT NULL,
    subscription_id int NOT NULL,
    -- The subscription's, as the worker has it.
    version         bigint NOT NULL,
    -- delivering: the worker claims its lanes. refused: it cannot make the destination. circuit_open: it sends nothing but
    -- probes, because the destination failed several sessions in a row.
    state           text NOT NULL,
    reason          text,
    -- In this state since.
    since           timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (worker_id, subscription_id),
    CONSTRAINT reported_state_is_known CHECK (state IN ('delivering', 'refused', 'circuit_open')),
    CONSTRAINT reason_unless_delivering CHECK ((state = 'delivering') = (reason IS NULL)),
    CONSTRAINT reason_is_bounded CHECK (octet_length(reason) <= 4096)
);
CREATE INDEX subscription_report_by_subscription ON lanekeeper.subscription_report (subscription_id);

-- Pauses that destinations asked for (429, Retry-After), by the bucket of the limit that they are about. Written only by
-- workers that have no Redis, and only for pauses that outlast a takeover (I10): a worker that starts, or takes the lanes of
-- a dead one, keeps them. Whoever writes one removes those that are over.
CREATE TABLE lanekeeper.limit_pause (
    bucket  text PRIMARY KEY,
    ends_at timestamptz NOT NULL,
    CONSTRAINT bucket_is_bounded CHECK (octet_length(bucket) <= 2000)
);

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
    -- As they were at the claim. NULL for a lane whose head is a suspected poison event: it is delivered alone, under a
    -- row of its own, so that it is not charged for a death that another event caused.
    crashes       int[] NOT NULL,
    PRIMARY KEY (connection_id, claim_id)
-- The arrays of 256 lanes fit a page: compressing them costs more than it saves.
) WITH (toast_tuple_target = 8160);
ALTER TABLE lanekeeper.claim ALTER COLUMN lane_ids SET STORAGE EXTERNAL, ALTER COLUMN versions SET STORAGE EXTERNAL;

-- Receivers that keep their dedupe table in this database (A8). Rows go after 7 days.
CREATE TABLE lanekeeper.seen_message (
    -- Whose memory it is: see functions/caller/producer.sql.
    receiver   text NOT NULL DEFAULT '',
    consumer   text NOT NULL,
    session    text NOT NULL,
    message_id uuid NOT NULL,
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (receiver, consumer, session, message_id)
);
CREATE INDEX seen_message_by_age ON lanekeeper.seen_message (seen_at);

-- What became of each subscription's messages, in figures that workers add to every few seconds: for `status`.
CREATE TABLE lanekeeper.message_count (
    subscription_id int PRIMARY KEY,
    sent    bigint NOT NULL DEFAULT 0,
    acked   bigint NOT NULL DEFAULT 0,
    retried bigint NOT NULL DEFAULT 0,
    failed  bigint NOT NULL DEFAULT 0,
    expired bigint NOT NULL DEFAULT 0,
    dropped bigint NOT NULL DEFAULT 0
);

-- Who told the engine what: every operator action on a lane, a subscription or a dead letter.
CREATE TABLE lanekeeper.operation (
    operation_id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    done_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    done_by         text NOT NULL DEFAULT session_user,
    action          text NOT NULL,
    subscription_id int,
    lane_id         bigint,
    seq             bigint,
    reason          text,
    session_id      bigint,
    CONSTRAINT action_is_known CHECK (action IN (
        'retry', 'skip', 'park', 'unpark', 'pause', 'resume', 'drop_dead_letter', 'requeue_dead_letter', 'close', 'drain',
        'reopen', 'bind', 'unbind', 'restore', 'replay', 'pause_replay', 'resume_replay', 'cancel_replay'))
);

-- The agent sessions of the stream `hooks`: what the events of a session tell about it. Written by the built-in
-- subscription of the session registry only, in the transaction of its settlement. Updated in place, because nothing of
-- the hot path reads it. No foreign key: adding one would wait for every producer's open transaction.
CREATE TABLE lanekeeper.agent_session (
    session_id        bigint PRIMARY KEY,
    -- The newest event that is told of here: an older one changes nothing.
    seq               bigint NOT NULL,
    cli               text,
    native_session_id text NOT NULL,
    -- Where the agent runs, and where its transcript is therefore.
    host              text,
    cwd               text,
    model             text,
    transcript_path   text,
    -- `cli`: the agent's own word, which stands over `lookup`, a file that was found by its name.
    transcript_from   text,
    started_at        timestamptz,
    ended_at          timestamptz,
    last_activity     text NOT NULL,
    last_activity_at  timestamptz NOT NULL,
    last_prompt       text,
    last_prompt_at    timestamptz,
    last_notification    text,
    last_notification_at timestamptz,
    last_error        text,
    last_error_code   text,
    last_error_at     timestamptz,
    turn_state        text NOT NULL,
    -- Turns that began, as far as they were seen.
    turn              bigint NOT NULL,
    -- The agent's own name of the turn, where it has one.
    turn_id           text,
    turn_started_at   timestamptz,
    turn_ended_at     timestamptz,
    -- The native event that ended it.
    turn_ended_by     text,
    -- What was last typed into its terminal, and where that came from.
    last_input        text,
    last_input_origin text,
    last_input_at     timestamptz,
    CONSTRAINT turn_state_is_known CHECK (turn_state IN ('idle', 'running')),
    CONSTRAINT running_turn_has_not_ended CHECK (turn_state = 'idle' OR (turn_ended_at IS NULL AND turn_started_at IS NOT NULL)),
    CONSTRAINT ended_iff_by CHECK ((turn_ended_at IS NULL) = (turn_ended_by IS NULL)),
    CONSTRAINT transcript_source_is_known CHECK (transcript_from IN ('cli', 'lookup')),
    CONSTRAINT transcript_has_source CHECK ((transcript_path IS NULL) = (transcript_from IS NULL)),
    CONSTRAINT texts_are_bounded CHECK (
        octet_length(last_prompt) <= 8192 AND octet_length(last_notification) <= 8192
        AND octet_length(last_error) <= 8192 AND octet_length(transcript_path) <= 4096 AND octet_length(cwd) <= 4096)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE INDEX agent_session_by_cli ON lanekeeper.agent_session (cli, session_id);
CREATE INDEX agent_session_running ON lanekeeper.agent_session (session_id) WHERE turn_state = 'running';

-- Messages that were typed into the terminals of agents, or were about to be: what was typed once is never typed again.
-- Goes with its age, as outcomes do.
CREATE TABLE lanekeeper.terminal_input (
    message_id   uuid NOT NULL,
    -- The subscription's name.
    subscription text NOT NULL,
    -- pasting: on record before the paste. entered: Enter was sent. confirmed: the agent reported a prompt then.
    -- unconfirmed: it did not, or nobody knows whether Enter was sent.
    stage        text NOT NULL,
    -- The agent session's newest event before the paste.
    hooks_seq    bigint NOT NULL,
    begun_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT stage_of_input_is_known CHECK (stage IN ('pasting', 'entered', 'confirmed', 'unconfirmed')),
    PRIMARY KEY (message_id, subscription)
);
CREATE INDEX terminal_input_by_age ON lanekeeper.terminal_input (begun_at);

-- An `apply` that changed which events of a stream are delivered: see functions/change/finish_changes.sql.
CREATE TABLE lanekeeper.stream_change (
    stream_id  int NOT NULL,
    -- The transaction of the apply.
    xact       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- snapshots: a snapshot from before `barrier` may be in use.
    -- transactions: none is, but what was written by one may not be committed yet.
    -- last: all of that is over: the scan that ends the change is due.
    stage      text NOT NULL DEFAULT 'snapshots',
    barrier    xid8 NOT NULL DEFAULT pg_current_xact_id(),
    -- When the next scan begins. Before the last one there are others, ever less often: an unrelated transaction may
    -- hold up the barrier.
    scan_at    timestamptz NOT NULL DEFAULT clock_timestamp() + interval '1 s',
    -- The last session of the scan that is under way.
    scanned_to  bigint,
    -- That scan left out a session whose append lock was taken.
    passed_over boolean NOT NULL DEFAULT false,
    PRIMARY KEY (stream_id, xact),
    CONSTRAINT stage_is_known CHECK (stage IN ('snapshots', 'transactions', 'last'))
);

-- Days of the log that are about to be dropped. Their sessions' last seqs were written by `xact`: see
-- functions/maintenance/drop_event_partition.sql.
CREATE TABLE lanekeeper.expiring_day (
    day  date PRIMARY KEY,
    xact xid8 NOT NULL
);

-- Sessions whose lanes are about to go: see functions/maintenance/expire_sessions.sql.
CREATE TABLE lanekeeper.expiring_session (
    session_id bigint PRIMARY KEY,
    xact       xid8 NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX expiring_session_by_xact ON lanekeeper.expiring_session (xact);

-- How far the present round over all sessions has come; 0 between two rounds.
CREATE TABLE lanekeeper.session_round (
    single    boolean PRIMARY KEY DEFAULT true,
    scanned_to bigint NOT NULL DEFAULT 0,
    begun_at  timestamptz NOT NULL DEFAULT '-infinity',
    CONSTRAINT one_row CHECK (single)
);
INSERT INTO lanekeeper.session_round DEFAULT VALUES;

-- The last draining session that finish_closing() scanned; 0 between two rounds.
CREATE TABLE lanekeeper.draining_round (
    single     boolean PRIMARY KEY DEFAULT true,
    scanned_to bigint NOT NULL DEFAULT 0,
    CONSTRAINT one_row CHECK (single)
);
INSERT INTO lanekeeper.draining_round DEFAULT VALUES;

-- Archive files of days of the log, where a worker writes them (`retention.archive_dir`). A day has one row while it is in
-- the log, with as many events as it had then; an event that is committed to it afterwards takes the row away, and the day
-- is archived anew. Rows stay: they tell where a day is. A day that comes again after its drop, by a clock that was set
-- back, has a file of its own.
CREATE TABLE lanekeeper.archived_day (
    day         date NOT NULL,
    -- The file, as the worker that wrote it calls it.
    location    text NOT NULL,
    events      bigint NOT NULL,
    bytes       bigint NOT NULL,
    -- Of the file: one that is cut off, altered or of another database has another.
    sha256      bytea NOT NULL,
    archived_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- When it left the log.
    dropped_at  timestamptz,
    PRIMARY KEY (day, location, archived_at),
    CONSTRAINT something_was_archived CHECK (events > 0 AND bytes > 0),
    CONSTRAINT file_hash_is_whole CHECK (octet_length(sha256) = 32)
);
CREATE UNIQUE INDEX archived_day_in_log ON lanekeeper.archived_day (day) WHERE dropped_at IS NULL;

-- Events of archived days, for replays and for nothing else: no append, claim, fetch, settlement or count reads them, so
-- what was restored is never taken for undelivered (I4, I13). A partition for each day; see functions/restore/.
CREATE TABLE lanekeeper.restored_event (
    session_id bigint NOT NULL,
    seq        bigint NOT NULL,
    day        date NOT NULL,
    priority   smallint NOT NULL,
    size       int NOT NULL,
    created_at timestamptz NOT NULL,
    message_id uuid NOT NULL,
    event_type text NOT NULL,
    payload    text NOT NULL,
    -- NULL: none.
    headers    jsonb,
    PRIMARY KEY (session_id, seq, day)
) PARTITION BY RANGE (day);

-- The files whose events are in restored_event. Maintenance drops a day, with its rows here, when all of it was kept long
-- enough and no replay needs it.
CREATE TABLE lanekeeper.restored_file (
    sha256      bytea PRIMARY KEY,
    day         date NOT NULL,
    events      bigint NOT NULL,
    restored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    keep_until  timestamptz NOT NULL,
    CONSTRAINT file_hash_is_whole CHECK (octet_length(sha256) = 32)
);

-- Access tokens of the HTTP API. Only the SHA-256 of a token's secret is kept: the secret has 244 random bits, so there
-- is nothing to guess and no need for a slow hash.
CREATE TABLE lanekeeper.token (
    token_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Who has it, in an operator's words. A revoked one keeps its name on record; a new one may take it.
    name       text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 200),
    hash       bytea NOT NULL CHECK (octet_length(hash) = 32),
    -- produce: append events; read: read logs and states; operate: what operators do.
    scopes     text[] NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ '{produce,read,operate}'),
    -- NULL: every stream.
    streams    text[] CHECK (cardinality(streams) > 0),
    -- Names of sessions, of which one that ends with * stands for all that begin so. NULL: every session.
    sessions   text[] CHECK (cardinality(sessions) > 0),
    -- Requests, as `limit` of a subscription is written; NULL: as many as the server takes.
    rate       text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE UNIQUE INDEX token_name ON lanekeeper.token (name) WHERE revoked_at IS NULL;
REVOKE ALL ON lanekeeper.token FROM PUBLIC;

-- Sign-ins at the dashboard, known to every worker. Only the SHA-256 of a sign-in's random id is kept, which the browser
-- has in a cookie. It is worth what its token is worth at the time, and never longer than it lasts.
CREATE TABLE lanekeeper.sign_in (
    hash       bytea PRIMARY KEY CHECK (octet_length(hash) = 32),
    token_id   bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX sign_in_by_end ON lanekeeper.sign_in (expires_at);
CREATE INDEX sign_in_of_token ON lanekeeper.sign_in (token_id, expires_at);
REVOKE ALL ON lanekeeper.sign_in FROM PUBLIC;

-- What was sent to a chat and may be edited there: the platform's own names of messages, so that whichever worker has
-- the lane next edits the message and sends no second one. A row per message, not per edit. Keyed by the subscription and
-- not the lane: a dormant session that comes back still knows its messages. No foreign keys: adding one would wait for
-- every producer's open transaction. What is left of a removed subscription goes with its age, as outcomes do.
CREATE TABLE lanekeeper.sent_message (
    subscription_id int NOT NULL,
    session_id      bigint NOT NULL,
    -- The platform's name of the chat, with a topic or thread in it.
    chat            text NOT NULL,
    -- Events with one key are versions of one message.
    key             text NOT NULL,
    -- A long text is several messages.
    part            int NOT NULL,
    -- What the platform calls it.
    reference       text NOT NULL,
    sent_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (subscription_id, session_id, chat, key, part),
    CONSTRAINT part_is_not_negative CHECK (part >= 0),
    CONSTRAINT sent_texts_are_bounded CHECK (
        octet_length(chat) <= 1024 AND octet_length(key) <= 1024 AND octet_length(reference) <= 1024)
);

CREATE INDEX sent_message_by_age ON lanekeeper.sent_message (sent_at);
