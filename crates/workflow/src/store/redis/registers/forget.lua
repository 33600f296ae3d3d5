-- Removes names from a register, unless they were registered again after the caller read their
-- times.
-- KEYS: the register, its sorted names, the times at which they were registered.
-- ARGV: for each name the name, and the time at which it was registered as far as the caller knows,
--         or an empty string.
-- Returns the number of removed names.
local removed = 0
for at = 1, #ARGV, 2 do
  local name = ARGV[at]
  local entered = redis.call('HGET', KEYS[3], name) or ''
  if entered == ARGV[at + 1] and redis.call('HGET', KEYS[1], name) ~= 'paused' then
    removed = removed + redis.call('HDEL', KEYS[1], name)
    redis.call('ZREM', KEYS[2], 'n' .. name)
    redis.call('HDEL', KEYS[3], name)
  end
end
return removed
