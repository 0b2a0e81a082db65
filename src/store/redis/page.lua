-- Reads a step of a page. KEYS[1]: a sorted set. ARGV: key prefix of the tenant; lower and upper bound; most members to
-- look at; about how many bytes to return; prefix of the names. Returns the last member looked at, whether the range
-- ended there, and members with their values.
local base, most, begin = ARGV[1], tonumber(ARGV[5]), ARGV[6]
local places = redis.call('ZRANGEBYLEX', KEYS[1], ARGV[2], ARGV[3], 'LIMIT', 0, ARGV[4])
local found, bytes, last, ended = {}, 0, '', #places < tonumber(ARGV[4])
for at, place in ipairs(places) do
  local name = string.sub(place, 17)
  last = place
  if string.sub(name, 1, #begin) == begin then
    local value = redis.call('HGET', base .. 'r:' .. name, 'b')
    if value then
      found[#found + 1] = place
      found[#found + 1] = value
      bytes = bytes + #value
    end
  end
  if bytes >= most then
    ended = ended and at == #places
    break
  end
end
return { last, ended and 1 or 0, found }
