-- Adds notes of workers to jobs of one partition. store/notes.rs describes the log.
--
-- KEYS  of each workflow: its results; its state as a hash, and as a string.
-- ARGV  1 slots of chunks, 2 largest size of a log in bytes, 3 bytes at which a chunk is full; then
--         for each note: its workflow, counted from 0; its job; progress, or an empty string;
--         encoded log lines, or an empty string; number of these lines.
-- Returns for each note: 1, or 0 if the workflow does not exist. A log whose extent cannot be
--         decoded begins anew.
local call, keys, argv = redis.call, KEYS, ARGV
local slots, most, full = tonumber(argv[1]), tonumber(argv[2]), tonumber(argv[3])
local answer = {}
for at = 4, #argv, 5 do
  local workflow, job, progress, entry = 3 * tonumber(argv[at]), argv[at + 1], argv[at + 2], argv[at + 3]
  local key, there = keys[workflow + 1], call('EXISTS', keys[workflow + 2], keys[workflow + 3])
  answer[#answer + 1] = there
  if there > 0 and progress ~= '' then
    call('HSET', key, job .. '.p', progress)
  end
  if there > 0 and entry ~= '' then
    local name = job .. '.l'
    local first, next, bytes, lines = string.match(call('HGET', key, name) or '', '^(%d+) (%d+) (%d+) (%d+)$')
    first, next, bytes, lines = tonumber(first or 0), tonumber(next or 0), tonumber(bytes or 0), tonumber(lines or 0)
    local latest = next > first and call('HGET', key, name .. (next - 1) % slots) or ''
    if next == first or #latest >= full then
      next, latest = next + 1, ''
    end
    bytes = bytes + #entry
    while bytes > most and first + 1 < next do
      local oldest = name .. first % slots
      bytes = math.max(bytes - #(call('HGET', key, oldest) or ''), 0)
      call('HDEL', key, oldest)
      first = first + 1
    end
    local log = string.format('%.0f %.0f %.0f %.0f', first, next, bytes, lines + tonumber(argv[at + 4]))
    call('HSET', key, name .. (next - 1) % slots, latest .. entry, name, log)
  end
end
return answer
