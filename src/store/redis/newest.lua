-- KEYS[1]: the places of an id. ARGV[1]: what every key of the tenant begins with. Returns the newest place that has a
-- value, and the value.
for _, place in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local value = redis.call('HGET', ARGV[1] .. 'r:' .. string.sub(place, 17), 'b')
  if value then
    return { place, value }
  end
end
return {}
