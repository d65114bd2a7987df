-- Which destinations have failures, and for how long each is open yet; in pairs, -1 where it is closed, with
-- since when it is open, or 0. Destinations of which nothing is left are forgotten.
--
-- KEYS  1 the destinations; ARGV 1 what the keys of circuits begin with; 2 those of the failed lanes.
local found = {}
for _, destination in ipairs(redis.call('SMEMBERS', KEYS[1])) do
    local circuit = instants(ARGV[1] .. destination, {'open', 'since', 'probe'})
    local open = circuit[1]
    if open then
        found[#found + 1] = {destination, math.max(0, math.ceil(open - now)), math.ceil(now - (circuit[2] or now))}
    elseif redis.call('EXISTS', ARGV[2] .. destination) == 1 then
        found[#found + 1] = {destination, -1, 0}
    else
        redis.call('SREM', KEYS[1], destination)
    end
end
return found
