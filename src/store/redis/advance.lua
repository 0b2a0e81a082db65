-- Moves a consumer's cursor. KEYS[1]: the task's set. ARGV: key prefix of the tenant; lower bound of unexpired members;
-- task; consumer; most consumers; most sources; 1 if a last query and source follow; these two; the time; a string with
-- 1 for each source that counts and 0 for others; the sources, without duplicates. Returns the outcome and the
-- position.
local base, live, task, consumer = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local flags, FIRST = ARGV[11], 12
-- Arguments per call (Lua's unpack is limited).
local STEP = 500

if #redis.call('ZRANGEBYLEX', KEYS[1], live, '+', 'LIMIT', 0, 1) == 0 then
  return { 'no task' }
end
local readers, consumed = base .. 'q:' .. task, base .. 'x:' .. task .. '\0\1' .. consumer
local from = redis.call('HGET', readers, consumer)
if from then
  from = cjson.decode(from)
elseif redis.call('HLEN', readers) >= tonumber(ARGV[5]) then
  return { 'too many' }
else
  from = { '', '', '0', '0' }
end

-- The score is the order of consumption.
local last = redis.call('ZREVRANGE', consumed, 0, 0, 'WITHSCORES')
local score, new, counted = tonumber(last[2] or '0'), 0, 0
for start = FIRST, #ARGV, STEP do
  local stop = math.min(start + STEP - 1, #ARGV)
  local known = redis.call('ZMSCORE', consumed, unpack(ARGV, start, stop))
  local added = {}
  for n = start, stop do
    if not known[n - start + 1] then
      score, new = score + 1, new + 1
      if string.sub(flags, n - FIRST + 1, n - FIRST + 1) == '1' then
        counted = counted + 1
      end
      added[#added + 1] = score
      added[#added + 1] = ARGV[n]
    end
  end
  if #added > 0 then
    redis.call('ZADD', consumed, unpack(added))
  end
end
if new == 0 then
  return { 'stays', from[1], from[2], from[3], from[4] }
end

local to = { from[1], from[2], string.format('%.0f', tonumber(from[3]) + counted), from[4] }
if ARGV[7] == '1' then
  to[1], to[2] = ARGV[8], ARGV[9]
end
if tonumber(ARGV[10]) > tonumber(from[4]) then
  to[4] = ARGV[10]
end
redis.call('HSET', readers, consumer, cjson.encode(to))
redis.call('ZREMRANGEBYRANK', consumed, 0, -1 - tonumber(ARGV[6]))
-- Expires with the task's records, which extend it.
local left = redis.call('PTTL', KEYS[1])
for _, key in ipairs({ readers, consumed }) do
  if left > 0 then
    redis.call('PEXPIRE', key, left)
  else
    redis.call('PERSIST', key)
  end
end
return { 'moved', to[1], to[2], to[3], to[4] }
