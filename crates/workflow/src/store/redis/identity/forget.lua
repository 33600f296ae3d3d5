-- Removes names from a register that nobody has entered since somebody looked.
-- KEYS: the register, its names in order, when they were entered.
-- ARGV: for each name the name, and when it was entered as far as the caller knows, or nothing.
-- Returns how many were removed.
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
