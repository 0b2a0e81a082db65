-- Keeps a tenant, ARGV[4], in the list of those that a sweep goes through, until ARGV[5].
redis.call('ZADD', KEYS[1], 0, ARGV[4])
keep(KEYS[1], tonumber(ARGV[5]))
