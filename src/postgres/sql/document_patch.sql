-- Purpose: patch a document, on behalf of $8 (NULL: of whom the session says), until the transaction ends. Keeps I1, I13.
-- Rows: one.
-- The setting is a condition of an argument: no plan can change anything before it.
SELECT d.version, d.message_id, d.seq, false AS created
FROM (SELECT set_config('lanekeeper.producer', coalesce($8, current_setting('lanekeeper.producer', true), ''), true) AS producer) AS s
CROSS JOIN LATERAL lanekeeper.patch_document(
    CASE WHEN s.producer IS NOT NULL THEN $1 END, $2, $3::jsonb, $4, $5, $6::jsonb, $7::jsonb) AS d
