-- Applies changes of one partition, each whole or not at all. The caller decided what to write; no rule is in here.
--
-- KEYS    1 ready rows, 2 index rows, 3 timers, 4 expiries, then the state of each change, then what operations name.
-- ARGV    1 packed: number of changes n; number of claims; for each claim its change and the key that must not exist;
--           for each change how many arguments its HSET of the state has.
--         2 packed: operations of all changes together: command, key, number of arguments.
--         3 packed: the same operations, of one change each: change, command, key, number of arguments.
--         then the expected meta of each change, empty when the state must not exist; then the arguments of the operations,
--           then those of each HSET. Packed is a cmsgpack array of integers. Keys and changes count from 1.
-- States are written last, and removed last where a change has no HSET: a script that Redis stops half way has changed no state.
-- Operations that add come first. So what is left half way has rows too many rather than too few, and a Redis whose memory is full
-- refuses the first write of a change that adds anything, and with it all of the call.
-- Returns n when all were applied, -n when also one was a creation and there was no index row. Else an array with one element
--           for each change: 0 when it was applied, an array of fields and values when the state is another, a string when a
--           key is taken: what is there.
local call, unpack, keys, argv = redis.call, unpack, KEYS, ARGV
local COMMANDS = { 'HSET', 'HDEL', 'SET', 'UNLINK', 'ZADD', 'ZREM' }
-- Lua's stack holds about 8,000 values. Even, so that pairs stay together.
local CHUNK = 4000

local function run(command, key, at, count)
  if count <= CHUNK then
    call(command, key, unpack(argv, at, at + count - 1))
  else
    call(command, key, unpack(argv, at, at + CHUNK - 1))
    run(command, key, at + CHUNK, count - CHUNK)
  end
end

local head = cmsgpack.unpack(argv[1])
local changes, claims = head[1], head[2]
local refused, creates
for change = 1, changes do
  creates = creates or argv[3 + change] == ''
  if (call('HGET', keys[4 + change], 'm') or '') ~= argv[3 + change] then
    refused = refused or {}
    refused[change] = call('HGETALL', keys[4 + change])
  end
end
for claim = 3, 1 + 2 * claims, 2 do
  local change = head[claim]
  local taken = not (refused and refused[change]) and call('GET', keys[head[claim + 1]])
  if taken then
    refused = refused or {}
    refused[change] = taken
  end
end

local empty = creates and call('EXISTS', keys[2]) == 0

local at, counts = 4 + changes, 2 + 2 * claims
if not refused then
  local operations = cmsgpack.unpack(argv[2])
  for operation = 1, #operations, 3 do
    local count = operations[operation + 2]
    run(COMMANDS[operations[operation]], keys[operations[operation + 1]], at, count)
    at = at + count
  end
else
  local operations = cmsgpack.unpack(argv[3])
  for operation = 1, #operations, 4 do
    local count = operations[operation + 3]
    if not refused[operations[operation]] then
      run(COMMANDS[operations[operation + 1]], keys[operations[operation + 2]], at, count)
    end
    at = at + count
  end
end

for change = 1, changes do
  local count = head[counts + change]
  if not (refused and refused[change]) then
    if count > 0 then
      run('HSET', keys[4 + change], at, count)
    elseif argv[3 + change] ~= '' then
      call('UNLINK', keys[4 + change])
    end
  end
  at = at + count
end

if not refused then
  return empty and -changes or changes
end
for change = 1, changes do
  refused[change] = refused[change] or 0
end
return refused
