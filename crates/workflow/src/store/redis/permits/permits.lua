-- Permits of one concurrency limit.
--
-- KEYS    1 the holders, a sorted set of leases by the millisecond at which their permits expire; 2
--         the server that waits for a permit: its name, or + for several servers.
-- ARGV    1 the operation, 2 the time in milliseconds where TIME is forbidden, then
--         hold: 3 permits of the limit, 4 duration in milliseconds, 5 the calling server, then
--           leases. Returns the number of leases that have a permit, the number of permits in use,
--           and the time until the first of them expires, or -1 if some are free.
--         extend: 3 duration in milliseconds, then leases. Returns for each 1, or 0 if it has no
--           permit.
--         release: 3 the calling server, 4 the command to publish, or an empty string, 5 the
--           channel, 6 the message, then leases. Returns the number of permits in use, and 1 if
--           Redis forbade to publish the message, else 0.
--         list: 3 the largest number of leases. Returns the number of permits in use, and leases
--           with their times.
-- Expired permits are removed first. Redis checks its memory before the first write only, and a
-- removal needs none, so a full Redis does not stop the script half way. The keys expire with the
-- last permit.
local call, argv, holders, waits = redis.call, ARGV, KEYS[1], KEYS[2]
local time = redis.pcall('TIME')
local now = time.err and tonumber(argv[2]) or time[1] * 1000 + math.floor(time[2] / 1000)
call('ZREMRANGEBYSCORE', holders, '-inf', now)

-- The time until the permit at a position expires: 0 is the first one, -1 the last one.
local function left(place)
  local found = call('ZRANGE', holders, place, place, 'WITHSCORES')
  return found[2] and found[2] - now
end

-- Gives permits to leases, or extends them. Returns the number of new permits.
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
    -- A lease that has a permit does not take another one. Lua's stack holds about 8,000 values.
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
    -- A server that waits, or that knows that no permit is free, calls again when the first permit
    -- expires.
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
  local waiting, publish_reply = removed > 0 and call('GET', waits)
  if waiting then
    call('UNLINK', waits)
    if waiting ~= argv[3] and argv[4] ~= '' then
      -- The receivers of the message call the store themselves, and nothing depends on it.
      publish_reply = redis.pcall(argv[4], argv[5], argv[6])
    end
  end
  return { call('ZCARD', holders), type(publish_reply) == 'table' and publish_reply.err and 1 or 0 }
end

local limit = tonumber(argv[3])
return { call('ZCARD', holders), limit > 0 and call('ZRANGE', holders, 0, limit - 1, 'WITHSCORES') or {} }
