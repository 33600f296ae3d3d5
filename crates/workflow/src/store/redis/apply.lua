-- Applies changes of one partition, each whole or not at all. The caller decided what to write; no rule is in here.
--
-- KEYS    1 ready rows, 2 index rows, 3 timers, 4 expiries, then the state of each change, then what strings and operations name.
-- ARGV    1 packed: number of changes n; 1 when the states are strings, 0 when they are hashes; number of claims; number of strings;
--           for each claim its change and the key that must not exist; for each string its change and its key;
--           for each change how many arguments its state has, 0 to remove it; for some changes the change, and version and writer of
--           the write that made the state that it expects.
--         2 packed: operations of all changes together: command, key, number of arguments.
--         3 packed: the same operations, of one change each: change, command, key, number of arguments.
--         then for each change what its state must begin with (of a hash: what its meta must be), empty when it must not exist; then the
--           arguments of each state, the strings, and the arguments of the operations. Packed is a cmsgpack array of integers.
--           Keys and changes count from 1.
-- A script that Redis stops half way, for want of memory or of a permission, leaves rows that should not be there and never lacks
-- one: first what adds, then the states, which count, then what removes. Operations are in this order.
-- Returns n when all were applied, -n when also one was a creation and there was no index row. Else an array with one element
--           for each change: 0 when it was applied, an array when the state is another: its fields and values, or the string, or
--           nothing; a string when a key is taken: what is there. Of a large state, if its trail tells: version and writer of the latest
--           write there, and an array of the fields that were written after the expected state, with their values.
-- The trail of a state is in its fields t0 to t63: the write with version v is in field v % 64, packed: version, writer, jobs that it
-- changed. The version alone means that these are too many.
local call, unpack, sub, keys, argv = redis.call, unpack, string.sub, KEYS, ARGV
local COMMANDS = { 'HSET', 'HDEL', 'SET', 'UNLINK', 'ZADD', 'ZREM' }
local REMOVES = { false, true, false, true, false, true }
-- Lua's stack holds about 8,000 values. Even, so that pairs stay together.
local CHUNK = 4000
local TRAIL = 64

local function run(command, key, at, count)
  if count <= CHUNK then
    call(command, key, unpack(argv, at, at + count - 1))
  else
    call(command, key, unpack(argv, at, at + CHUNK - 1))
    run(command, key, at + CHUNK, count - CHUNK)
  end
end

local head = cmsgpack.unpack(argv[1])
local changes, small, claims, strings = head[1], head[2] == 1, head[3], head[4]
local refused, creates

-- What was written after a version of a state. Nothing if the trail does not tell, or if it is too much.
local function since(key, version, writer)
  local fields, known, last = { 'm' }, {}
  for at = version, version + TRAIL - 1 do
    local entry = call('HGET', key, 't' .. at % TRAIL)
    entry = entry and cmsgpack.unpack(entry)
    if not entry or entry[1] ~= at then
      break
    end
    if at == version and entry[2] ~= writer or not entry[2] or #fields + #entry > CHUNK then
      return
    end
    for job = at == version and #entry + 1 or 3, #entry do
      if not known[entry[job]] then
        known[entry[job]] = true
        fields[#fields + 1] = entry[job]
      end
    end
    last = entry
  end
  if not last or last[1] == version then
    return
  end
  local values, pairs = call('HMGET', key, unpack(fields)), {}
  for at = 1, #fields do
    pairs[2 * at - 1], pairs[2 * at] = fields[at], values[at]
  end
  return { last[1], last[2], pairs }
end

local function later(change)
  local key = keys[4 + change]
  for at = 5 + 2 * claims + 2 * strings + changes, #head, 3 do
    if head[at] == change then
      return since(key, head[at + 1], head[at + 2]) or call('HGETALL', key)
    end
  end
  return call('HGETALL', key)
end

local found = small and call('MGET', unpack(keys, 5, 4 + changes))
for change = 1, changes do
  local expected, differs = argv[3 + change]
  if small then
    local is = found[change]
    if expected == '' then differs = is else differs = not is or sub(is, 1, #expected) ~= expected end
  else
    differs = (call('HGET', keys[4 + change], 'm') or '') ~= expected
  end
  creates = creates or expected == ''
  if differs then
    refused = refused or {}
    refused[change] = small and { found[change] or nil } or later(change)
  end
end
for claim = 5, 3 + 2 * claims, 2 do
  local change = head[claim]
  local taken = not (refused and refused[change]) and call('GET', keys[head[claim + 1]])
  if taken then
    refused = refused or {}
    refused[change] = taken
  end
end

local empty = creates and call('EXISTS', keys[2]) == 0

-- Without refusals, operations of all changes together; else those of each, with its number in front.
local operations = cmsgpack.unpack(argv[refused and 3 or 2])
local width = refused and 4 or 3
local counts, state = 4 + 2 * claims + 2 * strings, 4 + changes
local at = state
for change = 1, changes do
  at = at + head[counts + change]
end

local pairs = {}
for string = 5 + 2 * claims, 3 + 2 * claims + 2 * strings, 2 do
  if not (refused and refused[head[string]]) then
    pairs[#pairs + 1] = keys[head[string + 1]]
    pairs[#pairs + 1] = argv[at]
  end
  at = at + 1
end

local function put_strings()
  if #pairs == 0 then return end
  if small then
    call('MSET', unpack(pairs))
  else
    for pair = 1, #pairs, 2 do
      call('SET', pairs[pair], pairs[pair + 1])
    end
  end
end

local operation = width - 2
local function operate(removes)
  while operation <= #operations and (removes or not REMOVES[operations[operation]]) do
    local count = operations[operation + 2]
    if not (refused and refused[operations[operation - 1]]) then
      run(COMMANDS[operations[operation]], keys[operations[operation + 1]], at, count)
    end
    at = at + count
    operation = operation + width
  end
end

put_strings()
operate(false)
-- Whether rows may be removed shows before a state is written: the empty row is in no set. Not earlier: Redis asks for memory at
-- the first write only.
for operation = width - 2, #operations, width do
  if COMMANDS[operations[operation]] == 'ZREM' then
    call('ZREM', keys[operations[operation + 1]], '')
  end
end
pairs = {}
for change = 1, changes do
  local count = head[counts + change]
  if not (refused and refused[change]) then
    if count == 0 then
      if argv[3 + change] ~= '' then
        call('UNLINK', keys[4 + change])
      end
    elseif small then
      pairs[#pairs + 1] = keys[4 + change]
      pairs[#pairs + 1] = argv[state]
    else
      run('HSET', keys[4 + change], state, count)
    end
  end
  state = state + count
end
put_strings()
operate(true)

if not refused then
  return empty and -changes or changes
end
for change = 1, changes do
  refused[change] = refused[change] or 0
end
return refused
