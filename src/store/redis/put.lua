-- Stores records. ARGV[4], ARGV[5]: from where on (newest first) or up to where (oldest first) members have certainly
-- expired. Then five for each record: name, index data, value, its expiry time, and that of its day's aggregates.
local gone_down, gone_up = ARGV[4], ARGV[5]

local function index(key, place, at)
  redis.call('ZADD', key, 0, place)
  -- Removes expired members that no sweep has removed, so that the set does not grow for ever.
  if keep(key, at) then
    redis.call('ZREMRANGEBYLEX', key, '[' .. gone_down, '+')
  end
end

local function index_task(task, step, at)
  local key, readers = base .. 't:' .. task, base .. 'q:' .. task
  redis.call('ZADD', key, 0, step)
  if keep(key, at) then
    redis.call('ZREMRANGEBYLEX', key, '-', '(' .. gone_up)
  end
  local consumers = redis.call('HKEYS', readers)
  for _, consumer in ipairs(consumers) do
    keep(base .. 'x:' .. task .. '\0\1' .. consumer, at)
  end
  if #consumers > 0 then
    keep(readers, at)
  end
end

for n = 6, #ARGV, 5 do
  local name, meta, at = ARGV[n], cjson.decode(ARGV[n + 1]), tonumber(ARGV[n + 3])
  local key, place = base .. 'r:' .. name, meta.o .. name
  local old = remove_record(name)
  redis.call('HSET', key, 'm', ARGV[n + 1], 'b', ARGV[n + 2])
  if at > 0 then
    redis.call('PEXPIREAT', key, ARGV[n + 3])
  end
  index(base .. 'n', place, at)
  index(base .. 'i:' .. meta.i, place, at)
  if meta.v then
    index(base .. 'v:' .. meta.v, place, at)
  end
  for _, domain in ipairs(meta.d) do
    index(base .. 'd:' .. domain, place, at)
  end
  index_task(meta.k, meta.a .. name, at)
  count(meta, 1, tonumber(ARGV[n + 4]))
  -- After the insert: an updated record has not left its task.
  if old then
    drop_cursors_if_empty(old.k)
  end
end
