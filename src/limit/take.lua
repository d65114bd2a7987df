-- Decides by Redis' clock whether a send may go now. It takes from all buckets that the send needs, or from none.
-- src/limit/meter.rs explains the algorithm and the numbers; it makes the same decision for one process.
--
-- KEYS  1 the processes that reach this Redis, by when they last did; 2 what is known of this Redis;
--       3… the buckets. One hash tag, hence one slot.
-- ARGV  1 who asks; 2 the server's run id, as of the connection; 3 replicas; 4 not after this instant;
--       5 how long a process counts as present; 6 how far ahead slots are given; 7 the asker's slot, or 0;
--       then for each bucket: interval, tolerance, what one process may send on its own in a window, how
--       many of them may, what all may send in a window, the window. Instants and times are microseconds.
-- Returns what is to be done (0 go, 1 wait until the slot, 2 ask later, 3 asked too late: nothing was
--       done), Redis' now, the microseconds until then, the slot, which bucket it is for, and for each
--       bucket how long its destination asked for silence yet.
local replicas, slot = tonumber(ARGV[3]), tonumber(ARGV[7])
if now > tonumber(ARGV[4]) then return {3, now, 0, 0, 0} end

-- If the clock was set back, entries that were stored before lie in the future. Remove them: otherwise their processes
-- would count as present until the clock reaches them again.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '(' .. text(now), '+inf')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', text(now - tonumber(ARGV[5])))
redis.call('ZADD', KEYS[1], text(now), ARGV[1])
local present = redis.call('ZCARD', KEYS[1])
local absent = math.max(0, replicas - present)

-- A server that is new, or that lost its memory (`lost`), does not know which sends went out before. While some
-- processes sent without it, until they all joined again (`joined`), it does not know all of them. So each bucket
-- counts as empty at these instants.
local known, since = redis.call('HMGET', KEYS[2], 'run', 'absent'), instants(KEYS[2], {'lost', 'joined'})
local lost, joined = since[1] or now, since[2] or 0
if known[1] ~= ARGV[2] then lost = now end
if absent == 0 and known[2] and known[2] ~= '0' then joined = now end
if known[1] ~= ARGV[2] or known[2] ~= text(absent) then
    redis.call('HSET', KEYS[2], 'run', ARGV[2], 'absent', text(absent),
        'lost', text(lost), 'joined', text(joined), 'at', text(now))
end
-- A slot further ahead than the horizon means that the clock was set back since. Ignore that slot.
if slot > now + tonumber(ARGV[6]) then slot = 0 end

local buckets, silences = {}, {}
local free, line, spacing, binding = 0, 0, 0, 0
for i = 3, #KEYS do
    local at = 8 + (i - 3) * 6
    local interval, tolerance = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
    if absent > 0 then
        local own, participants = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
        local left = math.max(1, tonumber(ARGV[at + 4]) - own * math.min(absent, participants))
        interval = math.max(interval * replicas / present, tonumber(ARGV[at + 5]) / left)
        tolerance = 0
    end
    local stored = instants(KEYS[i], {'due', 'line', 'silent'})
    -- The rate may have been lower when it was stored.
    local latest = now + tolerance + (replicas + 1) * interval
    local due = math.min(stored[1] or 0, latest)
    local bucket = {
        interval = interval,
        due = math.max(due, joined + tolerance, lost + tolerance + math.min(interval, 1000000)),
        line = math.min(stored[2] or 0, now + tonumber(ARGV[6]) + interval),
        -- Other processes may have slots beyond this request's horizon.
        kept = stored[2] or 0,
        silent = stored[3] or 0,
    }
    bucket.free = math.max(bucket.due - tolerance, bucket.silent)
    buckets[#buckets + 1] = bucket
    silences[#silences + 1] = math.max(0, math.ceil(bucket.silent - now))
    local ready = math.max(bucket.free, bucket.line)
    if ready > math.max(free, line) then binding = i - 3 end
    if bucket.free > free then free, spacing = bucket.free, interval end
    line = math.max(line, bucket.line)
end

local function answer(what, wait, given)
    return {what, now, math.ceil(wait), math.ceil(given), binding, unpack(silences)}
end

local function store(i)
    local bucket = buckets[i]
    redis.call('HSET', KEYS[i + 2], 'due', text(bucket.due), 'line', text(bucket.kept), 'silent', text(bucket.silent),
        'at', text(now))
    -- An unused bucket is full again long before its key expires.
    local last = math.max(bucket.due, bucket.line, bucket.silent) - now
    redis.call('PEXPIRE', KEYS[i + 2], text(math.max(0, last) / 1000 + 600000))
end

local at, place = math.max(free, line), slot == 0
if slot > 0 then
    if slot > now and slot >= free then return answer(1, slot - now, slot) end
    -- The bucket is free only after at least one more interval. By then it is another waiter's turn, so this waiter
    -- gets a new slot at the end of the queue.
    place = free - now >= spacing
    if not place then at = free end
end
if at <= now then
    for i, bucket in ipairs(buckets) do
        bucket.due = math.max(bucket.due, now) + bucket.interval
        store(i)
    end
    return answer(0, 0, 0)
end
if at - now > tonumber(ARGV[6]) then return answer(2, at - now, 0) end
if place then
    for i, bucket in ipairs(buckets) do
        -- A bucket that is free much earlier is left unchanged, so that others can use it.
        if at <= math.max(bucket.free, bucket.line, now) + bucket.interval then
            bucket.line = at + bucket.interval
            bucket.kept = bucket.line
            store(i)
        end
    end
end
return answer(1, at - now, at)
