-- Removes old records. ARGV[4]: the first member to remove. ARGV[5], ARGV[6]: limits of one step, in members and
-- changes. Returns how many members were removed, and how many of them still had a record.
local newest = base .. 'n'
local seen, gone, work = 0, 0, 0
for _, place in ipairs(redis.call('ZRANGEBYLEX', newest, '[' .. ARGV[4], '+', 'LIMIT', 0, ARGV[5])) do
  local meta = remove_record(string.sub(place, 17))
  seen = seen + 1
  if meta then
    drop_cursors_if_empty(meta.k)
    gone = gone + 1
    work = work + #meta.d
  else
    -- The record has expired; its aggregates will.
    redis.call('ZREM', newest, place)
  end
  if work >= tonumber(ARGV[6]) then
    break
  end
end
return { seen, gone }
