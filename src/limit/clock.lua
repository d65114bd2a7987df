-- Prepended to every script: the server's clock in microseconds, and functions for instants that are stored.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function text(number) return string.format('%.0f', number) end

-- Reads these fields of a hash; they must be all of its instants. `at` is the time at which they were written. If `at`
-- is in the future, the clock was set back, so all instants are moved back by the same time. Otherwise every wait would
-- become longer by the time that the clock was set back.
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

