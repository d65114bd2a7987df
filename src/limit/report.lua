-- Records what a process did while it did not reach this Redis: its sends, how long its last send uses up each bucket,
-- and how long each destination asked for a pause.
--
-- KEYS  the buckets. ARGV for each of them: its interval, the sends owed, for how long yet the bucket
--       counts as used up, the silence. Microseconds from now.
for i, key in ipairs(KEYS) do
    local at = (i - 1) * 4
    local stored = instants(key, {'due', 'line', 'silent'})
    local due, line = stored[1] or 0, stored[2] or 0
    local silent = math.max(stored[3] or 0, now + tonumber(ARGV[at + 4]))
    local owed = tonumber(ARGV[at + 2])
    if owed > 0 then due = math.max(due, now) + owed * tonumber(ARGV[at + 1]) end
    due = math.max(due, now + tonumber(ARGV[at + 3]))
    redis.call('HSET', key, 'due', text(due), 'line', text(line), 'silent', text(silent), 'at', text(now))
    redis.call('PEXPIRE', key, text((math.max(due, line, silent) - now) / 1000 + 600000))
end
return now
