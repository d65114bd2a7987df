-- The circuits that all processes at Redis share; src/limit/breaker.rs explains them.
--
-- KEYS  1 the destinations with failures; 2 the circuit; 3 the lanes that failed. One hash tag.
-- ARGV  1 what happened: failed, probe (asks for it), succeeded; 2 the destination; 3 the lane; 4 whether
--       the failed delivery was the probe; 5 lanes that must fail in a row; 6 how long it stays open;
--       7 how long failures count; 8 how long a probe is waited for. Microseconds.
-- Returns whether it opened, or whether the probe is granted; and for how long it is shut yet, -1: it is closed.
local circuit = instants(KEYS[2], {'open', 'probe', 'since'})
local open, probe = circuit[1], circuit[2] or 0

if ARGV[1] == 'succeeded' then
    redis.call('DEL', KEYS[2], KEYS[3])
    redis.call('SREM', KEYS[1], ARGV[2])
    return {open and 1 or 0, -1}
end

if ARGV[1] == 'probe' then
    if not open then return {0, -1} end
    local shut = math.max(open, probe)
    if shut > now then return {0, math.ceil(shut - now)} end
    redis.call('HSET', KEYS[2], 'probe', text(now + tonumber(ARGV[8])), 'at', text(now))
    return {1, 0}
end

local function opened()
    redis.call('HSET', KEYS[2], 'open', text(now + tonumber(ARGV[6])), 'probe', '0', 'at', text(now))
    redis.call('HSETNX', KEYS[2], 'since', text(now))
    -- The circuit expires if no process uses it for a day.
    redis.call('PEXPIRE', KEYS[2], '86400000')
    return tonumber(ARGV[6])
end

redis.call('SADD', KEYS[1], ARGV[2])
if open then
    if ARGV[4] == '1' then return {0, opened()} end
    return {0, math.max(0, math.ceil(open - now))}
end
redis.call('SADD', KEYS[3], ARGV[3])
redis.call('PEXPIRE', KEYS[3], text(tonumber(ARGV[7]) / 1000))
if redis.call('SCARD', KEYS[3]) >= tonumber(ARGV[5]) then return {1, opened()} end
return {0, -1}
