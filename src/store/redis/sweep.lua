-- ARGV[4]: the first place that goes. ARGV[5]: members in one step; ARGV[6]: changes in one step, about. Returns how many
-- members went, and how many of them had a record still.
local newest = base .. 'n'
local seen, gone, work = 0, 0, 0
for _, place in ipairs(redis.call('ZRANGEBYLEX', newest, '[' .. ARGV[4], '+', 'LIMIT', 0, ARGV[5])) do
  local meta = take_out(string.sub(place, 17))
  seen = seen + 1
  if meta then
    left(meta.k)
    gone = gone + 1
    work = work + #meta.d
  else
    -- It expired, and its sums will.
    redis.call('ZREM', newest, place)
  end
  if work >= tonumber(ARGV[6]) then
    break
  end
end
return { seen, gone }
