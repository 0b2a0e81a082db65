// The chat page of the console: questions, stages, chips, and the wire view.

import { accessible, assert, fits, harm, PHONE, servers, until, visit } from './lib/harness.mjs';
import { shown } from './lib/bare.mjs';
import { ask, by, ended, open } from './lib/console.mjs';
import { measure, measured, smoothly } from './lib/measure.mjs';
import { demo, serve } from './lib/process.mjs';
import { longText, PAYLOADS } from './lib/texts.mjs';
import { ROUTES, upstream } from './lib/upstream.mjs';

const on = await servers({
  demo: () => demo({ history: 0 }),
  up: () => upstream(),
  scripted: ({ up }) => serve([...ROUTES(up.origin), { name: 'dead', upstream: 'http://127.0.0.1:1' }, { name: 'refuse', upstream: `${up.origin}/refuse` }]),
});
const chips = (turn) => turn.locator('.cite-chip');
const ROUTES_OF_DEMO = { doubao: 10, tencent: 5, 'doubao-en': 6, openai: 4 };

visit('the first visit shows the introduction and demo questions', async (page) => {
  await open(page, on.demo.origin);
  await by(page, 'hero').waitFor();
  assert.match(await by(page, 'hero').innerText(), /rests on/);
  await by(page, 'demo-question').first().waitFor();
  assert.deepEqual((await by(page, 'demo-question').filter({ visible: true }).evaluateAll((all) => all.map((it) => it.dataset.route))).sort(), Object.keys(ROUTES_OF_DEMO).sort());
  assert.match(await page.title(), /citetap/);
  await accessible(page, 'before the first question');
});

for (const [route, sources] of Object.entries(ROUTES_OF_DEMO)) {
  visit(`the demo's question to ${route} is answered with chips and sources`, async (page) => {
    await open(page, on.demo.origin);
    await page.locator(`[data-test=demo-question][data-route=${route}]`).first().click();
    const turn = by(page, 'turn');
    await ended(turn);
    assert.equal(await by(page, 'hero').isVisible(), false);
    assert.ok((await chips(turn).count()) >= 3);
    assert.equal(await turn.locator('.cite-chip:not([href])').count(), 0);
    assert.equal(await turn.locator('cite-list li').count(), sources);
    assert.match(await by(page, 'timeline-sources').innerText(), new RegExp(`${sources} sources.*stored`));
    const steps = await by(page, 'timeline').locator('li').evaluateAll((all) => all.map((it) => it.dataset.step));
    assert.ok(steps.includes('answer') && (route === 'openai' || steps.includes('stage')), steps.join());
    assert.ok((await by(page, 'wire-ours').count()) >= 1, 'our frame is on the wire');
    assert.ok((await by(page, 'wire-frame').count()) > 10);
    await chips(turn).first().hover();
    await page.locator('cite-card:popover-open').waitFor();
    assert.ok((await shown(page.locator('cite-card:popover-open'))).length > 20);
    await accessible(page, 'an answer and its open card');
  });
}

visit('each profile gives the same answer', async (page) => {
  await open(page, on.demo.origin);
  const seen = new Set();
  for (const profile of ['native', 'openai', 'ai-sdk', 'open-webui']) {
    const turn = await ask(page, 'doubao-en', { options: { profile } });
    assert.equal(await turn.locator('cite-list li').count(), 6, profile);
    seen.add(await shown(turn.locator('[data-test=answer]')));
    const frames = await by(page, 'wire-rows').innerText();
    assert.match(frames, profile === 'ai-sdk' ? /"delta":/ : profile === 'native' ? /CHUNK_DELTA/ : /chat\.completion|choices|data/, profile);
  }
  assert.equal(seen.size, 1);
});

for (const markers of ['link', 'sup', 'footnote', 'strip']) {
  visit(`markers can be rewritten: ${markers}`, async (page) => {
    await open(page, on.demo.origin);
    const turn = await ask(page, 'doubao-en', { options: { markers } });
    const text = await shown(turn.locator('[data-test=answer]'));
    assert.match(text, /skipped one of\s+them/);
    assert.doesNotMatch(text, /<sup|data-citation|\]\(http/);
    if (markers === 'sup' || markers === 'link') assert.ok((await turn.locator('[part~=answer] a[href]').count()) >= 5);
    assert.deepEqual(await harm(page), []);
  });
}

visit("the seed's own example, in the console", { outside: /^https:\/\/news\.example\.com\// }, async (page, { context }) => {
  await open(page, on.scripted.origin);
  const turn = await ask(page, 'seed', { question: '香港宏福苑火灾的最新情况？' });
  assert.equal((await turn.locator('[part~=answer]').innerText()).replaceAll('\u2060', ''), '香港宏福苑发生严重火灾2');
  await chips(turn).hover();
  const card = page.locator('cite-card:popover-open');
  await card.waitFor();
  const text = await shown(card);
  for (const part of ['香港宏福苑火灾最新情况', '示例新闻', '消防处将火警升为五级']) assert.ok(text.includes(part), text);
  const opened = context.waitForEvent('page');
  await chips(turn).click();
  assert.equal((await opened).url(), 'https://news.example.com/hk/wang-fuk-court-fire');
});

visit('the wire view highlights our frames, expands frames, and filters', { context: { permissions: ['clipboard-read', 'clipboard-write'] } }, async (page) => {
  await open(page, on.scripted.origin);
  await ask(page, 'seed', { options: { inject: 'final' } });
  assert.equal(await by(page, 'wire-ours').count(), 1);
  const all = await by(page, 'wire-frame').count();
  assert.ok(all >= 9, String(all));
  const colours = await page.evaluate(() => ['wire-frame', 'wire-ours'].map((name) => {
    const style = getComputedStyle(document.querySelector(`[data-test=${name}]`));
    return [style.backgroundColor, style.borderLeftColor, style.borderLeftWidth, style.color].join();
  }));
  assert.notEqual(colours[0], colours[1]);
  await by(page, 'wire-ours').locator('summary').click();
  await until(async () => /messageId[^]*香港宏福苑火灾最新情况/.test(await by(page, 'wire-ours').innerText()), 'its JSON');
  await by(page, 'wire-ours').locator('[data-test=wire-raw]').click();
  await until(async () => /event: citations\s+data: \{/.test(await by(page, 'wire-ours').innerText()), 'its bytes');
  await by(page, 'wire-ours').locator('[data-test=copy]').click();
  assert.match(await until(() => page.evaluate(() => navigator.clipboard.readText()), 'the clipboard'), /"citations"/);
  await by(page, 'wire-frame').nth(1).locator('summary').click();
  await accessible(page, 'opened frames');
  await by(page, 'wire-only-ours').check();
  assert.equal(await by(page, 'wire-frame').filter({ visible: true }).count(), 0);
  assert.equal(await by(page, 'wire-ours').filter({ visible: true }).count(), 1);
});

visit('the timeline shows searches and tools', async (page) => {
  await open(page, on.scripted.origin);
  const turn = await ask(page, 'stages');
  const timeline = await turn.locator('[data-test=timeline]').innerText();
  assert.match(timeline, /聚工单/);
  assert.match(timeline, /search_docs|工具/);
  await accessible(page);
});

visit('a follow-up question sends the previous messages', async (page) => {
  await open(page, on.scripted.origin);
  await ask(page, 'merged', { question: 'First question' });
  await ask(page, 'merged', { question: 'Second question' });
  const { messages } = JSON.parse(on.up.requests.filter(({ name }) => name === 'merged').at(-1).body);
  assert.deepEqual(messages.map(({ role }) => role), ['user', 'assistant', 'user']);
  assert.equal(messages[2].content, 'Second question');
  assert.match(messages[1].content, /^Three in a row \[1\]\[2\]\[3\]/);
  assert.equal(await by(page, 'turn').count(), 2);
  assert.equal(await by(page, 'wire-turn').isVisible(), true);
  await by(page, 'new-conversation').click();
  assert.equal(await by(page, 'turn').count(), 0);
  await page.reload();
  await by(page, 'question').waitFor();
  assert.equal(await by(page, 'turn').count(), 0);
});

visit('the conversation is kept when a record is opened', async (page) => {
  await open(page, on.scripted.origin);
  const turn = await ask(page, 'seed');
  await turn.locator('[data-test=record-link]').click();
  await by(page, 'page-record').waitFor();
  await by(page, 'sources').locator('li').first().waitFor();
  assert.equal(await by(page, 'sources').locator('li').count(), 3);
  await by(page, 'nav-chat').click();
  await by(page, 'turn').waitFor();
  await page.goBack();
  await by(page, 'page-record').waitFor();
});

visit('a stopped answer keeps its text', async (page) => {
  await open(page, on.scripted.origin);
  const turn = await ask(page, 'slow', { state: null });
  await until(async () => /takes its/.test(await shown(turn.locator('[data-test=answer]'))), 'some text');
  await by(page, 'stop').click();
  await until(async () => (await turn.getAttribute('data-state')) === 'stopped', 'its stop');
  assert.match(await turn.locator('[data-test=notice]').innerText(), /Stopped/);
  assert.equal(await by(page, 'ask').isVisible(), true);
  await accessible(page);
});

visit('an upstream failure shows its reason and a retry button', { allow: [/50[23]|Bad Gateway|ERR_INCOMPLETE_CHUNKED/] }, async (page) => {
  await open(page, on.scripted.origin);
  for (const [route, reason, kept] of [
    ['dead', /reached|unreachable|502/i, ''], ['refuse', /overloaded.*503|503/, ''], ['cut', /broke/, 'This answer is cut 1 in the middle of'],
    ['error', /rate limited/, 'This one fails 1 after a while.'], ['error-openai', /Provider disconnected/, 'This one fails 1 too.'],
  ]) {
    const turn = await ask(page, route, { state: 'broke' });
    const notice = turn.locator('[data-test=notice]');
    assert.match(await notice.innerText(), reason, route);
    assert.equal((await turn.locator('[part~=answer]').innerText()).replaceAll('\u2060', '').trim(), kept, route);
    if (kept) assert.ok((await turn.locator('cite-list li').count()) === 1, `${route}: its source`);
    assert.ok(await notice.locator('[data-test=again]').isVisible());
  }
  await accessible(page, 'all notices');
  await by(page, 'turn').first().locator('[data-test=again]').click();
  await until(async () => (await by(page, 'turn').count()) === 6, 'another try');
});

for (const route of ['hostile', 'hostile-openai', 'hostile-tencent', 'hostile-error']) {
  visit(`${route} in the console: nothing runs, payloads are text`, async (page) => {
    await open(page, on.scripted.origin);
    const turn = await ask(page, route, { question: PAYLOADS.join(' '), state: route === 'hostile-error' ? 'broke' : 'complete' });
    assert.deepEqual(await harm(page), []);
    for (const details of await page.locator('[data-test=thoughts] summary').all()) await details.click();
    if (route !== 'hostile-error') {
      await chips(turn).nth(2).hover();
      await page.locator('cite-card:popover-open').waitFor();
    } else assert.ok((await turn.locator('[data-test=notice]').innerText()).includes(PAYLOADS[0]));
    for (const row of await page.locator('[data-test=wire-ours] summary').all()) await row.click();
    for (const row of (await page.locator('[data-test=wire-frame] summary').all()).slice(0, 6)) await row.click();
    assert.deepEqual(await harm(page), [], 'with expanded frames');
    assert.ok((await turn.locator('h2').innerText()).includes(PAYLOADS[0].trim()), 'the question is text too');
    await turn.locator('[data-test=record-link]').click();
    await by(page, 'page-record').waitFor();
    await by(page, 'sources').locator('li').first().waitFor();
    for (const details of await page.locator('[data-test=bundle] summary, [data-test=record-json] summary').all()) await details.click();
    await page.waitForTimeout(300);
    assert.deepEqual(await harm(page), [], 'in the record');
    for (const [name, ready] of [['messages', 'message'], ['domains', 'domain-table'], ['status', 'tiles']]) {
      await by(page, `nav-${name}`).click();
      await by(page, ready).first().waitFor();
      assert.deepEqual(await harm(page), [], name);
    }
    await fits(page);
  });
}

visit('a long answer in the console is smooth, with the wire beside it', { timeout: 240_000 }, async (page) => {
  let turn;
  const smooth = await smoothly('long-openai, in the console', 100, async () => {
    await open(page, on.scripted.origin);
    await page.reload();
    await by(page, 'route').locator('option').nth(1).waitFor({ state: 'attached' });
    await measure(page);
    turn = await ask(page, 'long-openai');
    await page.waitForTimeout(300);
    return measured(page);
  });
  assert.equal(await turn.locator('[data-test=answer]').evaluate((it) => it.text), longText());
  assert.equal(await turn.locator('cite-list li').count(), 50);
  assert.ok(smooth.longest < 100, `a task of ${smooth.longest} ms`);
  assert.ok(smooth.gap < 250, `no frame for ${smooth.gap} ms`);
});

visit('on a phone: ask, tap a chip, look at the wire', { context: { viewport: PHONE, hasTouch: true, isMobile: true } }, async (page) => {
  await open(page, on.demo.origin);
  await fits(page, 'before');
  await by(page, 'demo-question').first().tap();
  const turn = by(page, 'turn');
  await ended(turn);
  await fits(page, 'an answer');
  await accessible(page, 'an answer');
  const first = chips(turn).first();
  await first.scrollIntoViewIfNeeded();
  await first.tap();
  const card = page.locator('cite-card:popover-open');
  await card.waitFor();
  await page.waitForTimeout(250);
  const box = await card.boundingBox();
  assert.ok(Math.abs(box.y + box.height - PHONE.height) <= 1, `at the bottom: ${JSON.stringify(box)}`);
  await fits(page, 'a sheet');
  await card.getByRole('button', { name: 'Close' }).tap();
  await by(page, 'view-wire').tap();
  await by(page, 'wire-ours').first().waitFor();
  await fits(page, 'the wire');
  await accessible(page, 'the wire');
});
