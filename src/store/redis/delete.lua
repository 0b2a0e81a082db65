-- ARGV[4]: the id. ARGV[5]: what its names begin with, or nothing. ARGV[6]: the last place that is not past its time yet,
-- or nothing. Returns how many went that could be read before.
local places = base .. 'i:' .. ARGV[4]
local begin, live, gone = ARGV[5], ARGV[6], 0
for _, place in ipairs(redis.call('ZRANGE', places, 0, -1)) do
  local name = string.sub(place, 17)
  if string.sub(name, 1, #begin) == begin then
    local meta = take_out(name)
    if not meta then
      redis.call('ZREM', places, place)
    else
      left(meta.k)
      if live == '' or string.sub(place, 1, 16) <= live then
        gone = gone + 1
      end
    end
  end
end
return gone
