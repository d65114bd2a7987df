-- The read model: who works, and what was promised. Its tables belong to nobody but the function below.
CREATE SCHEMA board;
CREATE TABLE board.agent (id text PRIMARY KEY, state text NOT NULL);
CREATE TABLE board.commitment (
    id    text PRIMARY KEY,
    agent text NOT NULL,
    says  text NOT NULL,
    state text NOT NULL
);
CREATE VIEW board.overview AS
SELECT a.id AS agent, a.state,
       count(*) FILTER (WHERE c.state IN ('open', 'verifying')) AS open,
       count(*) FILTER (WHERE c.state = 'verified') AS verified,
       count(*) FILTER (WHERE c.state = 'failed') AS failed
FROM board.agent AS a
LEFT JOIN board.commitment AS c ON c.agent = a.id
GROUP BY a.id ORDER BY a.id;

-- Called with each event of the documents `agent` and `commitment`, in the transaction that settles it.
CREATE FUNCTION board.keep(event jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    v_id   text := event #>> '{data,id}';
    v_body jsonb := event #> '{data,body}';
BEGIN
    CASE event #>> '{data,kind}'
        WHEN 'agent' THEN
            INSERT INTO agent (id, state)
            VALUES (v_id, CASE WHEN event ->> 'type' = 'AgentDismissed' THEN 'dismissed' ELSE v_body ->> 'state' END)
            ON CONFLICT (id) DO UPDATE SET state = excluded.state;
        WHEN 'commitment' THEN
            INSERT INTO commitment (id, agent, says, state)
            VALUES (v_id, v_body ->> 'agent', v_body ->> 'says', v_body ->> 'state')
            ON CONFLICT (id) DO UPDATE SET says = excluded.says, state = excluded.state;
        ELSE NULL;
    END CASE;
END $$;

-- The role that it runs as. Choose another password outside of an example.
DO $$ BEGIN
    CREATE ROLE board_keeper LOGIN PASSWORD 'board_keeper';
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;
GRANT USAGE ON SCHEMA board, lanekeeper TO board_keeper;
GRANT SELECT, INSERT, UPDATE, DELETE ON board.agent, board.commitment TO board_keeper;
GRANT EXECUTE ON FUNCTION lanekeeper.begin_projection, lanekeeper.settle_projection TO board_keeper;
