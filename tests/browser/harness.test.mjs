// Tests of the harness: it detects pages that do what they must not.

import { test } from 'node:test';
import { files } from './lib/files.mjs';
import { accessible, assert, fits, harm, PHONE, servers, until, visit } from './lib/harness.mjs';
import { web } from './lib/paths.mjs';
import { ROUTES, upstream } from './lib/upstream.mjs';
import { demo, serve } from './lib/process.mjs';

const pages = new Map();
const page = (html, headers = {}) => ({ html: `<!doctype html><html lang="en"><title>x</title><main><h1>x</h1>${html}</main>`, headers });
pages.set('/console', page('<script>console.error("logged"); console.warn("logged too")</script>'));
pages.set('/error', page('<script>throw new Error("thrown")</script>'));
pages.set('/outside', page('<img src="https://evil.example/x.png" alt="">'));
pages.set('/policy', page('<script>pwned(1)</script>', { 'content-security-policy': "script-src 'self'" }));
pages.set('/script', page('<img src="x" onerror="pwned(3)" alt=""><a href="javascript:pwned(2)">x</a>'));
pages.set('/dialog', page('<script>alert(1)</script>'));
pages.set('/bad', page('<img src="/favicon.ico"><p style="color:#999;background:#fff">pale</p><div style="width:900px">wide</div>'));

const on = await servers({
  site: () => files(web, pages),
  demo: () => demo(),
  up: () => upstream(),
  scripted: ({ up }) => serve(ROUTES(up.origin)),
});

const forbidden = {
  '/console': [/console error: logged/, /console warning: logged too/],
  '/error': [/page error: Error: thrown/],
  '/outside': [/requested GET https:\/\/evil.example\/x.png/],
  '/policy': [/console error: .*Content Security Policy/],
  '/script': [/injected script ran: 3/, /404/],
  '/dialog': [/dialog: 1/],
};
for (const [path, expected] of Object.entries(forbidden)) {
  visit(`the harness detects ${path}`, async (page, { problems }) => {
    await page.visit(on.site.origin + path);
    await until(async () => {
      const ran = (await page.evaluate('__pwned')).map((n) => `injected script ran: ${n}`);
      return expected.every((it) => [...problems, ...ran].some((problem) => it.test(problem)));
    }, expected);
    problems.length = 0;
    await page.evaluate('__pwned = []; __broken = []');
  });
}

visit('accessible, fits and harm find violations', async (page, { problems }) => {
  await page.setViewportSize(PHONE);
  await page.visit(`${on.site.origin}/bad`);
  await assert.rejects(accessible(page), /color-contrast[\s\S]*image-alt|image-alt[\s\S]*color-contrast/);
  await assert.rejects(fits(page), /908 > 360/);
  await page.visit(`${on.site.origin}/script`);
  assert.deepEqual(await harm(page), ['img has onerror', 'a href=javascript:pwned(2)']);
  problems.length = 0;
  await page.evaluate('__pwned = []');
});

test('the demo and the scripted upstream answer', async () => {
  for (const [origin, path, body, expected] of [
    [on.demo.origin, '/v1/chat/completions', { model: 'doubao-demo-en', stream: true, messages: [{ role: 'user', content: '?' }] }, 'event: citations'],
    ...ROUTES('').filter(({ name }) => !/long|slow|gated|late/.test(name)).map(({ name }) => [on.scripted.origin, '/v1/chat/completions', { model: `${name}-model`, stream: true, messages: [{ role: 'user', content: '?' }] }, /none/.test(name) ? '[DONE]' : 'event: citations']),
  ]) {
    const answer = await fetch(origin + path, { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } });
    assert.equal(answer.status, 200, `${body.model}: ${answer.ok || (await answer.text())} ${on.up.requests.map((it) => it.path)}`);
    const text = await new Response(answer.body).text().catch((error) => `cut: ${error}`);
    assert.ok(text.includes(expected) || body.model === 'cut-model', `${body.model}: ${text.slice(0, 300)}`);
  }
});
