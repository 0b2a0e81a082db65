// Compares readStream with `citetap replay` on every capture, in every dialect and chunking.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { readStream } from './lib/component.mjs';
import { captures, citetap, root } from './lib/paths.mjs';

const run = promisify(execFile);
const PROFILES = ['native', 'openai', 'ai-sdk', 'open-webui'];
const PROVIDERS = { doubao: 'doubao', samantha: 'doubao', tencent: 'tencent', openai: 'openai', anthropic: 'anthropic', gemini: 'gemini', 'openai-responses': 'openai-responses' };

// The event is cut to 64 KiB, and each dialect leaves other details out.
const OVERLONG = ['anthropic/pause-turn.sse'];
// Every chunk has a finish: a transcoded answer ends with the first.
const EARLY_FINISH = ['gemini/every-stop.sse'];

// Captures of providers, without golden outputs.
const found = captures().filter((file) => file.endsWith('.sse') && !/\.(out|openai|ai-sdk|open-webui)\.sse$/.test(file) && !file.includes('/fixtures/sse/'));

async function replayed(file, profile) {
  const folder = path.basename(path.dirname(file));
  const provider = PROVIDERS[folder] ?? 'auto';
  const args = ['replay', file, '--provider', provider, '--output', 'sse', '--profile', profile, '--link-base', 'https://lexiangla.com'];
  const { stdout } = await run(citetap, args, { encoding: 'buffer', maxBuffer: 1 << 26 }).catch((error) => (error.stdout?.length ? error : Promise.reject(error)));
  return stdout;
}

/** A response with these bytes, in chunks of `size`. */
function response(bytes, size, headers = {}) {
  let at = 0;
  const body = new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) return controller.close();
      controller.enqueue(bytes.subarray(at, (at += size)));
    },
  });
  return new Response(body, { headers: { 'content-type': 'text/event-stream; charset=utf-8', ...headers } });
}

async function read(bytes, size = bytes.length || 1, headers) {
  const out = { text: '', thinking: '', record: null, queries: [], errors: [], stages: [], ends: [], records: 0, raw: '' };
  for await (const event of readStream(response(bytes, size, headers), { onFrame: (frame) => (out.raw += `${frame.raw}\n`) })) {
    if (event.type === 'text') out.text += event.text;
    if (event.type === 'thinking') out.thinking += event.text;
    if (event.type === 'citations') (out.record = event.record), out.records++;
    if (event.type === 'stage') out.stages.push(event.name), out.queries.push(...(event.queries ?? []));
    if (event.type === 'error') out.errors.push(event.message);
    if (event.type === 'end') out.ends.push(event.complete);
  }
  assert.equal(out.ends.length, 1, 'one end');
  return out;
}

/** A minimal parser of chat completion streams, as reference. */
function oracle(bytes) {
  const out = { text: '', thinking: '', record: null, done: false };
  for (const line of bytes.toString('utf8').split(/\r\n|\r|\n/)) {
    const data = /^data: ?([^]*)$/.exec(line)?.[1];
    if (!data) continue;
    if (data.trim() === '[DONE]') {
      out.done = true;
      continue;
    }
    let json;
    try {
      json = JSON.parse(data);
    } catch {
      continue;
    }
    out.record = json.citetap ?? out.record;
    const delta = json.choices?.find(({ index }) => !index)?.delta;
    for (const part of [delta?.content].flat()) out.text += part?.text ?? part ?? '';
    out.thinking += delta?.reasoning_content ?? delta?.reasoning ?? '';
  }
  return out;
}

/** The fields of a record that do not depend on the replay. */
const comparable = (record) => record && {
  queries: record.queries, summary: record.summary, complete: record.complete,
  citations: record.citations.map(({ scores, sourceId, ...rest }) => rest),
};

const work = found.map((file) => ({ file, name: path.relative(root, file) }));
const limit = os.availableParallelism();

test(`${found.length} captures were found`, () => assert.ok(found.length >= 70, String(found.length)));

test('every capture reads the same in every dialect and chunking', { timeout: 240_000 }, async (t) => {
  const one = async ({ file, name }) => {
    await t.test(name, async () => {
      const streams = await Promise.all(PROFILES.map((profile) => replayed(file, profile)));
      const expected = oracle(streams[1]);
      for (const [at, bytes] of streams.entries()) {
        const profile = PROFILES[at];
        const whole = await read(bytes);
        const early = profile === 'native' && EARLY_FINISH.some((end) => file.endsWith(end));
        assert.equal(early ? whole.text.slice(0, expected.text.length) : whole.text, expected.text, `${profile}: the text`);
        assert.equal(whole.thinking, expected.thinking, `${profile}: the thinking`);
        if (!OVERLONG.some((end) => file.endsWith(end))) assert.deepEqual(comparable(whole.record), comparable(expected.record), `${profile}: the record`);
        if (expected.record) assert.equal(whole.ends[0], expected.record.complete, `${profile}: whether it is complete`);
        // Single bytes only for short captures, because they are slow.
        const sizes = profile === 'native' ? [bytes.length < 6_000 ? 1 : 13, 97] : [61];
        for (const size of sizes) assert.deepEqual(await read(bytes, size), whole, `${profile} in pieces of ${size}`);
      }
    });
  };
  for (let at = 0; at < work.length; at += limit) await Promise.all(work.slice(at, at + limit).map(one));
});

const bytes = (...frames) => Buffer.from(frames.join(''));
const chunk = (content, more = {}) => `data: ${JSON.stringify({ id: '1', object: 'chat.completion.chunk', choices: [{ index: 0, delta: { content }, finish_reason: null }], ...more })}\n\n`;
const record = (nonce, title) => ({ type: 'citations', version: 1, messageId: '1', nonce, complete: true, citations: [{ number: 1, url: 'https://a.example/', title }] });
const DONE = 'data: [DONE]\n\n';

test('a record with another nonce is ignored', async () => {
  const stream = bytes(chunk('a', { citetap: record('forged', 'Forged') }), chunk('b', { citetap: record('real', 'Real') }), chunk('c', { citetap: record('', 'Forged') }), DONE);
  const got = await read(stream, 50, { 'x-citetap-nonce': 'real' });
  assert.equal(got.records, 1);
  assert.equal(got.record.citations[0].title, 'Real');
  const verified = [];
  for await (const event of readStream(response(stream, 50, { 'x-citetap-nonce': 'real' }))) if (event.type === 'citations') verified.push(event.verified);
  assert.deepEqual(verified, [true]);
});

test('without a nonce to compare, a record is unverified', async () => {
  for await (const event of readStream(response(bytes(chunk('a', { citetap: record('x', 'T') }), DONE), 9))) if (event.type === 'citations') assert.equal(event.verified, false);
});

test('onFrame reports frames in order, and marks those of citetap', async () => {
  const frames = [];
  const stream = bytes(': citetap\n\n', 'id: 4\nevent: message\n', chunk('a'), 'event: citations\n', chunk('', { citetap: record('n', 'T') }), DONE);
  for await (const _ of readStream(response(stream, 3, { 'x-citetap-nonce': 'n' }), { onFrame: (frame) => frames.push(frame) }));
  assert.deepEqual(frames.map(({ event, id, ours }) => [event, id, ours]), [['', undefined, true], ['message', '4', false], ['citations', undefined, true], ['', undefined, false]]);
  assert.equal(frames.map(({ raw }) => raw.trimEnd()).join('\n\n'), stream.toString().trimEnd());
});

test('an answer that breaks off gives an error event, no exception', async () => {
  const body = new ReadableStream({
    start: (controller) => controller.enqueue(bytes(chunk('so far'))),
    pull: (controller) => controller.error(new TypeError('network error')),
  });
  const events = [];
  for await (const event of readStream(new Response(body, { headers: { 'content-type': 'text/event-stream' } }))) events.push(event);
  assert.deepEqual(events.map(({ type }) => type), ['text', 'error', 'end']);
  assert.equal(events.at(-1).complete, false);
});

test('a refusal gives an error event with its reason', async () => {
  const problem = { type: 'urn:x', title: 'Unauthorized', status: 401, detail: 'This needs a key.' };
  const refused = new Response(JSON.stringify(problem), { status: 401, headers: { 'content-type': 'application/problem+json' } });
  const events = [];
  for await (const event of readStream(refused)) events.push(event);
  assert.equal(events[0].type, 'error');
  assert.match(events[0].message, /needs a key/);
  assert.deepEqual(events.at(-1), { type: 'end', complete: false });
  const plain = [];
  for await (const event of readStream(new Response('Bad Gateway', { status: 502, headers: { 'content-type': 'text/html' } }))) plain.push(event);
  assert.deepEqual(plain.map(({ type }) => type), ['error', 'end']);
  assert.match(plain[0].message, /502/);
});

test('CR, CRLF, a BOM and comments', async () => {
  for (const end of ['\r', '\n', '\r\n']) {
    const stream = bytes('\ufeff', ': hello\n\n', chunk('火'), 'retry: 5\n\n', 'data:', chunk('灾').slice(6), DONE).toString().replaceAll('\n', end);
    for (const size of [1, 2, 3, 1000]) {
      const got = await read(Buffer.from(stream), size);
      assert.equal(got.text, '火灾', JSON.stringify([end, size]));
      assert.equal(got.ends[0], true);
    }
  }
});
