-- What the steps work on, and where each run stands. In one transaction: two programs may start at once.
BEGIN;
SELECT pg_advisory_xact_lock(hashtext('examples/saga'));
CREATE SCHEMA IF NOT EXISTS saga;

CREATE TABLE IF NOT EXISTS saga.workspace (
    workspace_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pool         text NOT NULL,
    -- Who has it. A run has one at the most.
    run          text UNIQUE
);
CREATE TABLE IF NOT EXISTS saga.agent (
    run        text PRIMARY KEY,
    started_at timestamptz NOT NULL DEFAULT now(),
    stopped_at timestamptz
);

-- Where a run stands: `Run` in run.rs.
CREATE TABLE IF NOT EXISTS saga.run (
    run     text PRIMARY KEY,
    request jsonb NOT NULL,
    phase   text NOT NULL,
    done    int NOT NULL
);
-- Each effect, in order. It has no key: what happened twice would be here twice.
CREATE TABLE IF NOT EXISTS saga.effect (
    effect_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run       text NOT NULL,
    what      text NOT NULL
);
COMMIT;
