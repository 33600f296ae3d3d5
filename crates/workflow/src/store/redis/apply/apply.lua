-- Applies changes of one partition, each completely or not at all. The caller decides what to
-- write; the script knows no rule.
--
-- KEYS    1 ready rows, 2 index rows, 3 timers, 4 expiries, then the state of each change, then the
--         keys of strings and operations.
-- ARGV    1 packed plan: number of changes n; kind of states: 1 strings, 0 hashes, 2 hashes that
--         must have a field and are not changed;
--           numbers of claims, of strings, of operations that add, of operations;
--           for each claim its change and the key that must not exist; for each string its change
--             and its key;
--           for each change the number of arguments of its state, 0 to remove it (of kind 2: to
--             leave it as it is);
--           then the operations of all changes, those that add first: command, key, number of
--             arguments.
--         2 packed plan for refusals: numbers of operations that add, of operations, of trails;
--           the operations again, of one change each: command, key, number of arguments, change;
--           for each trail the change, version and writer of the write that made the expected
--             state, and length of the trail.
--         then for each change the expected beginning of its string, the expected meta of its hash,
--           or the field that its hash must have; empty if the state must not exist;
--         then the arguments of each state (a single argument of a hash is the number of a staged
--           key, which is renamed to the state), the strings, and the arguments of the operations;
--         then, if other servers are to be notified, the command to publish, the channel and the
--           message.
--         Packed is a cmsgpack array of integers. Keys and changes count from 1.
--         Commands are 1 HSET, 2 HDEL, 3 UNLINK, 4 ZADD, 5 ZREM. With an argument, UNLINK removes
--         a string only if it has this value.
-- Redis may stop the script half way, for lack of memory or of a permission. Then superfluous rows
-- may exist, but none is missing: operations that add come first, then the states, which decide,
-- then operations that remove.
-- Returns n if all changes were applied; -n if also one was a creation and there was no index row;
--         n + 2^20 instead of n if Redis forbade to publish the message. Otherwise an array with
--         one element for each change:
--         0 if it was applied; an array if the state differs from the expected one: its fields and
--           values, or the string, or nothing;
--         a string if its key is taken: the owner.
--         For a large state whose trail goes back to the expected state: version and writer of its
--           latest write, and an array of the fields that were written since, with their values. 1
--           instead of the fields and values if there are more than 2,048 fields.
-- The trail of n writes is in the fields t0 to t(n-1) of a state: the write with version v is in
-- field v % n, packed: version, writer, changed jobs. The version alone means that the jobs are not
-- listed.
--
-- Tables and functions that a call does not need are not created: they would cost more than the
-- work itself.
local call, unpack, find, keys, argv = redis.call, unpack, string.find, KEYS, ARGV
local head = cmsgpack.unpack(argv[1])
local field = head[2] == 2
local changes, small, claims, strings = head[1], head[2] == 1, head[3], head[4]
local refused, taken, creates

local found = small and call('MGET', unpack(keys, 5, 4 + changes))
for change = 1, changes do
  local expected, differs = argv[2 + change]
  if small then
    local is = found[change]
    if expected == '' then differs = is else differs = not is or find(is, expected, 1, true) ~= 1 end
  elseif field then
    differs = not call('HGET', keys[4 + change], expected)
  else
    differs = (call('HGET', keys[4 + change], 'm') or '') ~= expected
  end
  creates = creates or expected == ''
  if differs then
    refused = refused or {}
    refused[change] = true
  end
end
for claim = 7, 5 + 2 * claims, 2 do
  local change = head[claim]
  local owner = not (refused and refused[change]) and call('GET', keys[head[claim + 1]])
  if owner then
    refused, taken = refused or {}, taken or {}
    refused[change], taken[change] = true, owner
  end
end
local empty = creates and call('EXISTS', keys[2]) == 0

local counts, state = 6 + 2 * claims + 2 * strings, 2 + changes
local at = state
for change = 1, changes do
  at = at + head[counts + change]
end

if strings > 0 then
  local pairs, last = {}, 0
  for string = 7 + 2 * claims, 5 + 2 * claims + 2 * strings, 2 do
    if not (refused and refused[head[string]]) then
      if small then
        pairs[last + 1], pairs[last + 2] = keys[head[string + 1]], argv[at + 1]
        last = last + 2
      else
        call('SET', keys[head[string + 1]], argv[at + 1])
      end
    end
    at = at + 1
  end
  if last > 0 then
    call('MSET', unpack(pairs))
  end
end

-- The plan without refusals has the operations of all changes combined; the other one has those of
-- each change.
local plan, operation, width, adds, all = head, counts + changes + 1, 3, head[5], head[6]
if refused then
  plan = cmsgpack.unpack(argv[2])
  operation, width, adds, all = 4, 4, plan[1], plan[2]
end
-- Lua's stack holds about 8,000 values, so long lists are passed in parts. The parts are even, so
-- that no pair is split.
for number = 1, all do
  if number == adds + 1 then
    -- ZREM of an empty row, which is in no set, tests the permission to remove rows before a state
    -- is written. It must not be the first write, because Redis checks its memory only at the first
    -- write of a script.
    for later = operation, operation + (all - adds - 1) * width, width do
      if plan[later] == 5 then
        call('ZREM', keys[plan[later + 1]], '')
        break
      end
    end
    break
  end
  local command, key, count = plan[operation], keys[plan[operation + 1]], plan[operation + 2]
  if not (refused and refused[plan[operation + 3]]) then
    for from = at + 1, at + count, 4000 do
      call(command == 4 and 'ZADD' or 'HSET', key, unpack(argv, from, math.min(from + 3999, at + count)))
    end
  end
  at, operation = at + count, operation + width
end

local pairs, last = small and {}, 0
for change = 1, changes do
  local count = head[counts + change]
  if not (refused and refused[change]) then
    if count == 0 then
      if argv[2 + change] ~= '' and not field then
        call('UNLINK', keys[4 + change])
      end
    elseif small then
      pairs[last + 1], pairs[last + 2] = keys[4 + change], argv[state + 1]
      last = last + 2
    elseif count == 1 then
      local staged = keys[tonumber(argv[state + 1])]
      call('PERSIST', staged)
      call('RENAME', staged, keys[4 + change])
    else
      for from = state + 1, state + count, 4000 do
        call('HSET', keys[4 + change], unpack(argv, from, math.min(from + 3999, state + count)))
      end
    end
  end
  state = state + count
end
if last > 0 then
  call('MSET', unpack(pairs))
end

for _ = adds + 1, all do
  local command, key, count = plan[operation], keys[plan[operation + 1]], plan[operation + 2]
  if not (refused and refused[plan[operation + 3]]) then
    if command == 3 then
      if count == 0 or call('GET', key) == argv[at + 1] then
        call('UNLINK', key)
      end
    else
      for from = at + 1, at + count, 4000 do
        call(command == 5 and 'ZREM' or 'HDEL', key, unpack(argv, from, math.min(from + 3999, at + count)))
      end
    end
  end
  at, operation = at + count, operation + width
end
-- The message is the last write: its receivers read the store themselves, and nothing depends on
-- it.
local publish_reply = not argv[at + 1] or redis.pcall(argv[at + 1], argv[at + 2], argv[at + 3])

if not refused then
  local done = type(publish_reply) == 'table' and publish_reply.err and changes + 1048576 or changes
  return empty and -done or done
end

-- The fields that were written after a version of a state. Nil if the trail does not go back that
-- far, or if they are too many.
local function since(key, version, writer, length)
  local fields, known, last = { 'm' }, {}
  for at = version, version + length - 1 do
    local entry = call('HGET', key, 't' .. at % length)
    entry = entry and cmsgpack.unpack(entry)
    if not entry or entry[1] ~= at then
      break
    end
    if at == version and entry[2] ~= writer or not entry[2] or #fields + #entry > 4000 then
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

local function trail(change)
  for at = 4 + 4 * all, #plan, 4 do
    if plan[at] == change then
      return since(keys[4 + change], plan[at + 1], plan[at + 2], plan[at + 3])
    end
  end
end

local answer = {}
for change = 1, changes do
  if not refused[change] then
    answer[change] = 0
  elseif taken and taken[change] then
    answer[change] = taken[change]
  elseif field then
    answer[change] = {}
  elseif small then
    answer[change] = { found[change] or nil }
  else
    local key = keys[4 + change]
    answer[change] = trail(change) or call('HLEN', key) > 2048 and 1 or call('HGETALL', key)
  end
end
return answer
