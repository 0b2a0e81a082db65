-- Keeps a tenant in the list of those that a sweep goes through. ARGV: the tenant, the time, until when (0: for ever).
redis.call('ZADD', KEYS[1], 0, ARGV[1])
local now, at = tonumber(ARGV[2]), tonumber(ARGV[3])
if at == 0 then
  redis.call('PERSIST', KEYS[1])
elseif redis.call('PTTL', KEYS[1]) < at - now then
  redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', at + 3600000))
end
