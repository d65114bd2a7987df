-- Purpose: change the documents of one array, in its order, all or none, on behalf of $2 (NULL: of whom the session says),
-- until the transaction ends. Keeps I1, I13. Rows: one per document, at most 1000.
-- The setting is a condition of an argument: no plan can change anything before it.
SELECT d.version, d.message_id, d.seq, d.created
FROM (SELECT set_config('lanekeeper.producer', coalesce($2, current_setting('lanekeeper.producer', true), ''), true) AS producer) AS s
CROSS JOIN LATERAL lanekeeper.put_documents(CASE WHEN s.producer IS NOT NULL THEN $1::jsonb END) AS d
