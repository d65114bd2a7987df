-- Access tokens of the HTTP API. Only the SHA-256 of a token's secret is kept: the secret has 244 random
-- bits, so there is nothing to guess and no need for a slow hash.
CREATE TABLE lanekeeper.token (
    token_id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Who has it, in an operator's words. A revoked one keeps its name on record; a new one may take it.
    name       text NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 200),
    hash       bytea NOT NULL CHECK (octet_length(hash) = 32),
    -- produce: append events; read: read logs and states; operate: what operators do.
    scopes     text[] NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ '{produce,read,operate}'),
    -- NULL: every stream.
    streams    text[] CHECK (cardinality(streams) > 0),
    -- Requests, as `limit` of a subscription is written; NULL: as many as the server takes.
    rate       text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz
);
CREATE UNIQUE INDEX token_name ON lanekeeper.token (name) WHERE revoked_at IS NULL;
REVOKE ALL ON lanekeeper.token FROM PUBLIC;
