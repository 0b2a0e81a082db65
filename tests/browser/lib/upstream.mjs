// The scripted upstream of `serve`: the first path segment selects the script.

import http from 'node:http';
import * as dialects from './dialects.mjs';
import { deltas, hostileSources, hostileText, longSources, longText, PAYLOADS } from './texts.mjs';

const page = (n, more = {}) => ({
  title: `Page ${n} about heat pumps`, url: `https://site${n}.example.com/page-${n}`, snippet: `What page ${n} says, in a sentence or two.`,
  site: `Site ${n}`, date: '2025-11-12T09:00:00+00:00', ...more,
});

// The example of seed 002; its marker refers to the second source.
const SEED = {
  queries: ['香港宏福苑火灾'],
  sources: [
    { title: '大埔宏福苑背景资料', url: 'https://wiki.example.org/wang-fuk-court', snippet: '宏福苑是位于香港大埔的居屋屋苑。', site: '百科', date: '2025-10-01T08:00:00+08:00' },
    { title: '香港宏福苑火灾最新情况', url: 'https://news.example.com/hk/wang-fuk-court-fire', snippet: '香港大埔宏福苑发生严重火灾，消防处将火警升为五级。', site: '示例新闻', date: '2025-11-27T07:50:20+08:00' },
    { title: '消防处通报', url: 'https://www.example.gov.hk/fire', snippet: '消防处通报灭火救援进展。', site: '消防处' },
  ],
};
export const SEED_TEXT = '香港宏福苑发生严重火灾[2]';

const HOSTILE = () => ({
  deltas: deltas(hostileText(), 37), sources: hostileSources(), queries: PAYLOADS.slice(0, 12), summary: PAYLOADS[2],
  thinking: PAYLOADS.join('\n'), thinkingTitle: PAYLOADS[4], conversation: '<img src=x onerror=pwned(90)>', model: '<img src=x onerror=pwned(91)>',
});

const paced = (text, size, every) => deltas(text, size).flatMap((delta) => [every, delta]);

/** Scripts by name. A script pauses at a gate until the test releases it. */
const SCRIPTS = {
  seed: () => dialects.doubao({ ...SEED, deltas: ['香港宏福苑发生', '严重火灾', '[', '2', ']'] }),
  'seed-late': (gate) => dialects.doubao({ ...SEED, deltas: [`${SEED_TEXT}，现场情况如下：`, '消防员正在灌救[1]。', '后面的文字不应移动[3][1]，一个字也不动。', gate], sourcesAt: 'last' }),
  merged: () => dialects.openai({ deltas: ['Three in a row [1][2][3], two [2][4], a list [1,2], and one [4].'], sources: [1, 2, 3, 4].map((n) => page(n)) }),
  dangling: () => dialects.openai({ deltas: ['Known [1], unknown [7], both [1][9], arr[1] and `[1]` are code. The year is [2024].'], sources: [page(1)] }),
  nourl: () => dialects.doubao({ deltas: ['With a URL [1], without one [2], and with a bad one [3].'], sources: [page(1), page(2, { url: undefined }), page(3, { url: 'ftp://files.example.com/x' })] }),
  cut: () => dialects.doubao({ deltas: ['This answer is cut [1]', ' in the middle of'], sources: [page(1)], end: 'cut' }),
  error: () => dialects.doubao({ deltas: ['This one fails [1]', ' after a while.'], sources: [page(1)], end: 'error', error: 'rate limited' }),
  'error-openai': () => dialects.openai({ deltas: ['This one fails [1]', ' too.'], sources: [page(1)], end: 'error', error: 'Provider disconnected' }),
  stages: () => dialects.tencent({
    stages: [
      { stage: 'internal_searching', message: '正在搜索“聚工单”', detail: { space_name: '聚工单' } },
      { stage: 'tool_call_start', message: '正在调用工具...', detail: { tool_name: 'search_docs', tool_id: 'tool-1' } },
      { stage: 'tool_call_progress', message: '工具执行中', detail: { tool_name: 'search_docs', tool_id: 'tool-1', progress: 40 } },
      { stage: 'tool_call_finish', message: '工具完成', detail: { tool_name: 'search_docs', tool_id: 'tool-1' } },
    ],
    deltas: ['答案如下', '[1]。'], sources: [page(1)],
  }),
  none: () => dialects.openai({ deltas: ['No sources were', ' needed for this.'] }),
  hostile: () => dialects.doubao(HOSTILE()),
  'hostile-openai': () => dialects.openai(HOSTILE()),
  'hostile-tencent': () => dialects.tencent({
    ...HOSTILE(),
    stages: PAYLOADS.map((payload, at) => ({ stage: at % 2 ? 'tool_call_start' : payload, message: payload, detail: { tool_name: payload, tool_id: `t${at}`, space_name: payload } })),
  }),
  'hostile-error': () => dialects.doubao({ ...HOSTILE(), deltas: ['Then it fails'], end: 'error', error: PAYLOADS.slice(0, 8).join(' ') }),
  // 40 deltas a second, as a fast model; `fast`: without pauses.
  long: () => dialects.doubao({ deltas: paced(longText(), 25, 25), sources: longSources() }),
  'long-openai': () => dialects.openai({ deltas: paced(longText(), 50, 25), sources: longSources(), sourcesAt: 'last' }),
  fast: () => dialects.doubao({ deltas: deltas(longText(), 25), sources: longSources() }),
  gated: (gate) => dialects.openai({ deltas: ['First part [1]. ', gate, 'Second part [2].', gate], sources: [page(1), page(2)] }),
  slow: () => dialects.openai({ deltas: paced('A slow answer that takes its time, word by word, so that somebody may stop it [1]. '.repeat(20), 12, 60), sources: [page(1)] }),
};

/** A route for `serve` per script. */
export const ROUTES = (origin) =>
  Object.keys(SCRIPTS).map((name) => {
    const request = /openai|merged|dangling|none|gated|slow/.test(name) ? 'openai' : /tencent|stages/.test(name) ? 'lexiang' : 'template';
    return { name, upstream: `${origin}/${name}`, request, questions: name === 'seed' ? ['香港宏福苑火灾的最新情况？'] : undefined };
  });

export async function upstream() {
  let gates = [];
  const requests = [];
  const gate = () => new Promise((resolve) => gates.push(resolve));

  async function play(frames, request, response) {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' });
    let due = performance.now();
    for (const frame of frames) {
      if (response.destroyed) return;
      if (typeof frame === 'function') {
        await frame();
        due = performance.now();
      } else if (typeof frame === 'number') {
        // Sleep until an absolute time, so that delays do not add up.
        due += frame;
        const left = due - performance.now();
        if (left > 0) await new Promise((resolve) => setTimeout(resolve, left));
      } else if (!response.write(frame)) {
        await new Promise((resolve) => (response.once('drain', resolve), response.once('close', resolve)));
      }
    }
  }

  const server = http.createServer((request, response) => {
    let body = '';
    request.on('data', (data) => (body += data));
    request.on('end', async () => {
      const name = request.url.split('/')[1];
      requests.push({ name, path: request.url, body, headers: request.headers });
      if (name === 'refuse') return response.writeHead(503, { 'content-type': 'application/json' }).end('{"error":{"message":"overloaded"}}');
      if (!SCRIPTS[name]) return response.writeHead(404).end();
      await play(SCRIPTS[name](gate), request, response);
      if (name === 'cut') return response.destroy();
      response.end();
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    origin: `http://127.0.0.1:${server.address().port}`,
    /** All requests so far. */
    requests,
    /** Releases all scripts that wait at a gate; returns their number. */
    release() {
      const waiting = gates;
      gates = [];
      waiting.forEach((resolve) => resolve());
      return waiting.length;
    },
    waiting: () => gates.length,
    async stop() {
      gates.forEach((resolve) => resolve());
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
