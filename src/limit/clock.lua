-- The server's clock in microseconds, and instants that were stored by it. Stands before every script.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function text(number) return string.format('%.0f', number) end

-- These fields of a hash, all its instants. `at` says when they were written: if that is still to come, the clock was
-- set back, and they move back with it. What was left of a wait then is left now; otherwise it would be as much longer
-- as the clock was set back.
local function instants(key, fields)
    local stored = redis.call('HMGET', key, 'at', unpack(fields))
    local back = (tonumber(stored[1]) or now) - now
    local found, moved = {}, {'at', text(now)}
    for i, field in ipairs(fields) do
        found[i] = tonumber(stored[i + 1])
        if found[i] and back > 0 then
            found[i] = found[i] - back
            moved[#moved + 1] = field
            moved[#moved + 1] = text(found[i])
        end
    end
    if back > 0 then redis.call('HSET', key, unpack(moved)) end
    return found
end

