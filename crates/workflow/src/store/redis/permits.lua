-- Places in one limit of how many jobs are at work at once.
--
-- KEYS    1 the holders, a sorted set of leases by the millisecond at which they lose their places; 2 which server waits for one of them:
--           its name, or + for several.
-- ARGV    1 what to do, 2 the time in milliseconds where TIME is not permitted, then
--         hold: 3 places, 4 for how long, 5 who asks, then leases. Returns how many got one, how many places are taken, and the time until
--           the first of these is free, or -1.
--         extend: 3 for how long, then leases. Returns for each 1, or 0 if it had no place.
--         release: 3 who asks, 4 the command that tells others, or nothing, 5 the channel, 6 the message, then leases. Returns how many
--           places are taken, and 1 if Redis did not let it tell others, else 0.
--         list: 3 how many. Returns how many places are taken, and leases with their times.
-- Leases that are over are removed first; Redis asks for memory before the first write only, and removing needs none, so a full Redis does not
-- stop the script half way. What is left expires with the last of them.
local call, argv, holders, waits = redis.call, ARGV, KEYS[1], KEYS[2]
local time = redis.pcall('TIME')
local now = time.err and tonumber(argv[2]) or time[1] * 1000 + math.floor(time[2] / 1000)
call('ZREMRANGEBYSCORE', holders, '-inf', now)

-- Until the first or the last of the holders is over.
local function left(place)
  local found = call('ZRANGE', holders, place, place, 'WITHSCORES')
  return found[2] and found[2] - now
end

-- Returns how many of these leases had no place before.
local function put(from, to, length)
  local pairs, last = {}, 0
  for at = from, to do
    pairs[last + 1], pairs[last + 2] = now + length, argv[at]
    last = last + 2
  end
  return call('ZADD', holders, 'GT', unpack(pairs))
end

if argv[1] == 'hold' then
  local most, length, number, at = tonumber(argv[3]), tonumber(argv[4]), call('ZCARD', holders), 6
  while at <= #argv do
    -- Who has a place takes no other one. Lua's stack holds about 8,000 values.
    local some = math.min(most - number, #argv - at + 1, 2000)
    if some < 1 then
      if not call('ZSCORE', holders, argv[at]) then
        break
      end
      some = 1
    end
    number = number + put(at, at + some - 1, length)
    at = at + some
  end
  if at > 6 then
    call('PEXPIRE', holders, left(-1))
  end
  if at <= #argv or number >= most then
    -- Who waits, or knows that none is left, asks again when the first holder is over.
    local known = call('GET', waits)
    call('SET', waits, known and known ~= argv[5] and '+' or argv[5], 'PX', left(-1) or length)
  end
  return { at - 6, number, number >= most and left(0) or -1 }
end

if argv[1] == 'extend' then
  local length, had, any = tonumber(argv[3]), {}, false
  for at = 4, #argv do
    had[at - 3] = 0
    if call('ZSCORE', holders, argv[at]) then
      put(at, at, length)
      had[at - 3], any = 1, true
    end
  end
  if any then
    call('PEXPIRE', holders, left(-1))
  end
  return had
end

if argv[1] == 'release' then
  local removed = 0
  for from = 7, #argv, 4000 do
    removed = removed + call('ZREM', holders, unpack(argv, from, math.min(from + 3999, #argv)))
  end
  local waiting, told = removed > 0 and call('GET', waits)
  if waiting then
    call('UNLINK', waits)
    if waiting ~= argv[3] and argv[4] ~= '' then
      -- Whoever hears of it asks for itself, and nothing depends on it.
      told = redis.pcall(argv[4], argv[5], argv[6])
    end
  end
  return { call('ZCARD', holders), type(told) == 'table' and told.err and 1 or 0 }
end

local limit = tonumber(argv[3])
return { call('ZCARD', holders), limit > 0 and call('ZRANGE', holders, 0, limit - 1, 'WITHSCORES') or {} }
