-- Purpose: delete a document, on behalf of $7 (NULL: of whom the session says), until the transaction ends. Keeps I1, I13.
-- Rows: one.
-- The setting is a condition of an argument: no plan can change anything before it.
SELECT d.version, d.message_id, d.seq, false AS created
FROM (SELECT set_config('lanekeeper.producer', coalesce($7, current_setting('lanekeeper.producer', true), ''), true) AS producer) AS s
CROSS JOIN LATERAL lanekeeper.delete_document(
    CASE WHEN s.producer IS NOT NULL THEN $1 END, $2, $3, $4, $5::jsonb, $6::jsonb) AS d
