-- Purpose: forget versions of documents that were superseded more than $1 days ago. Index: document_version_by_age.
-- Rows: looks at $2 at most.
SELECT lanekeeper.forget_document_versions($1, $2) AS looked_at
