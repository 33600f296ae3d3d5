-- Reads the first rows of lanes. The rows of a lane begin with its queue, a zero, its key and a
-- zero.
--
-- KEYS    1 ready rows.
-- ARGV    1 the largest number of rows of each lane; 2 the largest number of lanes of a scan; then
--         for each scan its first and its last bound.
-- Returns for each scan an array: 1 if it reached its end, else 0; then the rows.
local call, find, sub = redis.call, string.find, string.sub
local each, lanes = ARGV[1], tonumber(ARGV[2])
local walks = {}
for walk = 3, #ARGV, 2 do
  local from, to, rows, left = ARGV[walk], ARGV[walk + 1], {0}, lanes
  while true do
    local found = call('ZRANGE', KEYS[1], from, to, 'BYLEX', 'LIMIT', 0, left > 0 and each or 1)
    if #found == 0 then
      rows[1] = 1
      break
    end
    if left == 0 then break end
    left = left - 1
    local zero = find(found[1], '\0', 1, true)
    zero = find(found[1], '\0', zero + 1, true)
    local lane = sub(found[1], 1, zero)
    for at = 1, #found do
      if sub(found[at], 1, zero) ~= lane then break end
      rows[#rows + 1] = found[at]
    end
    from = '[' .. sub(lane, 1, -2) .. '\1'
  end
  walks[#walks + 1] = rows
end
return walks
