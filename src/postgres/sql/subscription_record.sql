-- Purpose: put a version on record: which events it filtered, from when on (I4). Rows: one.
INSERT INTO lanekeeper.subscription_version (subscription_id, version, definition)
VALUES ($1, $2, $3)
