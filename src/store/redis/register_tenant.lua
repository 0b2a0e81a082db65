-- Keeps the tenant ARGV[4] until ARGV[5] in the set that sweeps iterate.
redis.call('ZADD', KEYS[1], 0, ARGV[4])
keep(KEYS[1], tonumber(ARGV[5]))
