-- Puts fields into a state that is being staged, so that it expires at whatever moment its server dies.
--
-- KEYS    1 the staged state.
-- ARGV    1 milliseconds until it expires, counted anew by each piece; 2 '1' for the first piece, else '0'; then fields and values.
-- Returns 0 when what was staged before is not there any more, and then adds nothing.
local there = redis.call('PEXPIRE', KEYS[1], ARGV[1])
if there == 0 and ARGV[2] == '0' then
  return 0
end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
