-- KEYS[1]: the set of an id. ARGV[1]: key prefix of the tenant. Returns the newest member that has a value, and the
-- value.
for _, place in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local value = redis.call('HGET', ARGV[1] .. 'r:' .. string.sub(place, 17), 'b')
  if value then
    return { place, value }
  end
end
return {}
