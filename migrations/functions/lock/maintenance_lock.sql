-- The key of one kind of maintenance. Tasks: 1 creating partitions, 2 retention, 3 finishing changes of subscriptions,
-- 4 moving the recent partitions, 5 archiving, 6 closing sessions, 7 moving lanes to other hosts,
-- 8 feeding replays, 9 restoring archived days. A task that is locked is left to the process that has it.
CREATE OR REPLACE FUNCTION lanekeeper.maintenance_lock(task bigint, secret uuid DEFAULT lanekeeper.read_lock_secret()) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE RETURN 5497494367205588992 | (uuid_hash_extended(secret, 5497494367205588992 + task) & 1099511627775);
