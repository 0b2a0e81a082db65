-- Deletes the records of an id. ARGV[4]: the id. ARGV[5]: prefix of their names, or empty. ARGV[6]: the last unexpired
-- time, or empty. Returns how many unexpired records were deleted.
local places = base .. 'i:' .. ARGV[4]
local begin, live, gone = ARGV[5], ARGV[6], 0
for _, place in ipairs(redis.call('ZRANGE', places, 0, -1)) do
  local name = string.sub(place, 17)
  if string.sub(name, 1, #begin) == begin then
    local meta = remove_record(name)
    if not meta then
      redis.call('ZREM', places, place)
    else
      drop_cursors_if_empty(meta.k)
      if live == '' or string.sub(place, 1, 16) <= live then
        gone = gone + 1
      end
    end
  end
end
return gone
