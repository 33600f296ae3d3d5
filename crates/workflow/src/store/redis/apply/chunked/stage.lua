-- Adds fields to a staged state, which expires even if its server dies at any moment.
--
-- KEYS    1 the staged state.
-- ARGV    1 milliseconds until it expires, renewed by each chunk; 2 '1' for the first chunk, else
--         '0'; then fields and values.
-- Returns 0, and adds nothing, if the earlier chunks have expired.
local there = redis.call('PEXPIRE', KEYS[1], ARGV[1])
if there == 0 and ARGV[2] == '0' then
  return 0
end
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
