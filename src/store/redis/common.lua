-- Shared by put, delete and sweep. ARGV[1]: key prefix of the tenant; ARGV[2]: the time now in milliseconds; ARGV[3]:
-- extra lifetime for keys that many records share, so that few writes have to extend their expiry.
--
-- r:<name>          a record: `b` is its value, `m` its index data. A name is a provider and an id.
-- n i:<id> v:<conversation> d:<domain>
--                   sorted sets of records, newest first: each member is 16 hexadecimal digits and the name
-- t:<task>          the same, oldest first
-- c:<day>           totals of a day, by provider
-- s:<day>:<provider> totals of a day, by site
-- q:<task>          positions of its consumers; x:<task>\0\1<consumer> the sources each has consumed
local base, now, slack = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])

-- Keeps a key at least until `at`; 0 means for ever. Returns true if that extended its expiry, which happens now and
-- then.
local function keep(key, at)
  if at == 0 then
    redis.call('PERSIST', key)
    return false
  end
  at = math.max(at, now)
  local left = redis.call('PTTL', key)
  if left < 0 or left < at - now then
    redis.call('PEXPIREAT', key, string.format('%.0f', at + slack))
    return true
  end
  return false
end

-- Adds numbers to those of a field. The first number counts messages: at 0 the field is deleted. Returns whether it
-- remains.
local function sum(key, field, by, times)
  local old, new = redis.call('HGET', key, field), {}
  if old then
    for value in string.gmatch(old, '[^,]+') do
      new[#new + 1] = tonumber(value)
    end
  end
  for at, value in ipairs(by) do
    new[at] = (new[at] or 0) + value * times
  end
  if new[1] <= 0 then
    redis.call('HDEL', key, field)
    return false
  end
  for at, value in ipairs(new) do
    new[at] = string.format('%.0f', value)
  end
  redis.call('HSET', key, field, table.concat(new, ','))
  return true
end

local function count(meta, times, at)
  local counts, sites = base .. 'c:' .. meta.y, base .. 's:' .. meta.y .. ':' .. meta.p
  if not sum(counts, meta.p, meta.c, times) then
    redis.call('UNLINK', sites)
    return
  end
  for site, by in pairs(meta.s) do
    sum(sites, site, by, times)
  end
  if at then
    keep(counts, at)
    keep(sites, at)
  end
end

-- Removes a record, but not its task's cursors. Returns its index data, or nil if there was none.
local function remove_record(name)
  local key = base .. 'r:' .. name
  local meta = redis.call('HGET', key, 'm')
  if not meta then
    return nil
  end
  meta = cjson.decode(meta)
  local place = meta.o .. name
  redis.call('UNLINK', key)
  redis.call('ZREM', base .. 'n', place)
  redis.call('ZREM', base .. 'i:' .. meta.i, place)
  redis.call('ZREM', base .. 't:' .. meta.k, meta.a .. name)
  if meta.v then
    redis.call('ZREM', base .. 'v:' .. meta.v, place)
  end
  for _, domain in ipairs(meta.d) do
    redis.call('ZREM', base .. 'd:' .. domain, place)
  end
  count(meta, -1)
  return meta
end

-- Deletes a task's cursors if its last record is gone.
local function drop_cursors_if_empty(task)
  if redis.call('EXISTS', base .. 't:' .. task) == 1 then
    return
  end
  local readers = base .. 'q:' .. task
  for _, consumer in ipairs(redis.call('HKEYS', readers)) do
    redis.call('UNLINK', base .. 'x:' .. task .. '\0\1' .. consumer)
  end
  redis.call('UNLINK', readers)
end
