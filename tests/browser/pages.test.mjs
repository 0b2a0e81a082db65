// The other pages of the console: messages, records, domains and status.

import fs from 'node:fs';
import { accessible, assert, DESKTOP, fits, PHONE, servers, until, visit } from './lib/harness.mjs';
import { shown } from './lib/bare.mjs';
import { ask, by, open, stored } from './lib/console.mjs';
import { demo, serve } from './lib/process.mjs';
import { ROUTES, upstream } from './lib/upstream.mjs';

const on = await servers({
  up: () => upstream(),
  scripted: ({ up }) => serve([...ROUTES(up.origin), { name: 'dead', upstream: 'http://127.0.0.1:1' }], { store: 'sqlite:pages.db' }),
  empty: ({ up }) => serve(ROUTES(up.origin)),
  demo: () => demo({ history: 14 }),
});
const NAMES = ['seed', 'merged', 'nourl', 'dangling', 'error', ...Array(28).fill('stages')];
const IDS = await stored(on.scripted.origin, NAMES);
const [SEED, MERGED, NOURL, , FAILED] = IDS;
const day = (offset) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
const rows = (page) => by(page, 'message');

/** Waits until the list has finished loading and has `count` rows. */
const listed = (page, count, what) => until(async () => (await rows(page).count()) === count && !/Loading/.test(await by(page, 'messages-status').innerText()), `${count} messages: ${what}`);

visit('messages: newest first, more on demand', async (page) => {
  await open(page, on.scripted.origin, 'messages');
  await listed(page, 25, 'a page');
  await accessible(page, 'the list');
  await by(page, 'load-more').click();
  await listed(page, NAMES.length, 'all');
  assert.equal(await by(page, 'load-more').isVisible(), false);
  assert.match(await rows(page).last().innerText(), /香港宏福苑火灾/);
  assert.match(await by(page, 'messages-status').innerText(), /33 messages/);
  const links = await rows(page).locator('a').evaluateAll((all) => all.map((it) => decodeURIComponent(it.hash)));
  assert.deepEqual(links.map((hash) => /messages\/([^?]+)/.exec(hash)[1]), [...IDS].reverse());
});

visit('messages are found by text, site, provider, conversation and time', async (page) => {
  await open(page, on.scripted.origin, 'messages');
  await listed(page, 25, 'at first');
  const narrow = async () => (await by(page, 'filter-domain').isVisible()) || (await by(page, 'more-filters').click());
  const only = async (filters, count, what) => {
    await narrow();
    for (const [name, value] of Object.entries(filters)) {
      const field = by(page, `filter-${name}`);
      await (name === 'provider' ? field.selectOption(value) : field.fill(value));
    }
    await listed(page, count, what);
    const parameter = (name) => new URLSearchParams(new URL(page.url()).hash.split('?')[1]).get(name);
    await until(() => Object.entries(filters).every(([name, value]) => parameter(name) === value), `${what} to be in the address`);
    await page.reload();
    await listed(page, count, `${what}, reloaded`);
    await by(page, 'clear-filters').click();
    await listed(page, 25, 'after clearing');
    assert.equal(await by(page, 'clear-filters').isVisible(), false);
  };
  await only({ q: '宏福苑' }, 1, 'by text');
  await only({ q: 'nothing like this' }, 0, 'by text that is nowhere');
  await only({ domain: 'news.example.com' }, 1, 'by site');
  await only({ domain: 'site4.example.com' }, 1, 'by another site');
  await only({ provider: 'openai' }, 2, 'by provider');
  await only({ provider: 'doubao', domain: 'example.com' }, 3, 'by provider and site');
  const { conversationId } = await (await fetch(`${on.scripted.origin}/citations/${SEED}`)).json();
  await only({ conversation: conversationId }, 1, 'by conversation');
  await only({ since: day(1) }, 0, 'since tomorrow');
  await only({ until: day(-1) }, 0, 'until yesterday');
  await only({ since: day(-1), until: day(0) }, 25, 'these days');
  await by(page, 'filter-q').fill('nothing like this');
  await by(page, 'no-match').waitFor();
  await accessible(page, 'nothing fits');
});

visit('a record: sources, scores, counts, bundle, JSON', { context: { permissions: ['clipboard-read', 'clipboard-write'] } }, async (page) => {
  await open(page, on.scripted.origin, `messages/${SEED}`);
  await by(page, 'sources').locator('li').first().waitFor();
  assert.equal(await by(page, 'sources').locator('li').count(), 3);
  assert.ok(await by(page, 'badge-complete').first().isVisible());
  assert.ok(await by(page, 'badge-stored').first().isVisible());
  assert.match(await by(page, 'scores').innerText(), /[01]\.\d\d/);
  assert.match(await by(page, 'corroboration').innerText(), /Confidence/);
  assert.match(await by(page, 'counts').innerText(), /Returned\s*3/);
  await accessible(page, 'a record');
  await by(page, 'bundle').locator('summary').click();
  await until(async () => /query_id/.test(await by(page, 'bundle').innerText()), 'the bundle');
  await by(page, 'record-json').locator('summary').click();
  await until(async () => (await by(page, 'record-json').innerText()).includes(SEED), 'the JSON');
  await accessible(page, 'all opened');
  await by(page, 'permalink').click();
  const link = await until(() => page.evaluate(() => navigator.clipboard.readText()), 'the link');
  assert.ok(link.startsWith(`${on.scripted.origin}/#/messages/${SEED}`), link);
  await page.goto('about:blank');
  await page.visit(link);
  await by(page, 'sources').locator('li').first().waitFor();
  await page.reload();
  await by(page, 'sources').locator('li').first().waitFor();
});

visit('an answer that failed is marked as such', async (page) => {
  await open(page, on.scripted.origin, `messages/${FAILED}`);
  await by(page, 'badge-incomplete').first().waitFor();
  await accessible(page);
});

visit('a record is exported in every format', async (page) => {
  await open(page, on.scripted.origin, `messages/${SEED}`);
  await by(page, 'exports').waitFor();
  const expected = {
    markdown: /\[香港宏福苑火灾最新情况\]\(/, footnotes: /^\[\^?2\]/m, html: /<a [^>]*href="https:\/\/news\.example\.com/, csv: /^number,|,/m,
    bibtex: /@\w+\{/, ris: /^TY {2}- /m, csl: /"title"/, prompt: /香港宏福苑火灾最新情况/, json: /"messageId"/,
  };
  for (const [format, pattern] of Object.entries(expected)) {
    const downloading = page.waitForEvent('download');
    await by(page, `export-${format}`).click();
    const download = await downloading;
    const text = fs.readFileSync(await download.path(), 'utf8');
    assert.match(text, pattern, format);
    if (format !== 'prompt') assert.ok(text.includes('news.example.com/hk/wang-fuk-court-fire'), format);
    assert.match(download.suggestedFilename(), new RegExp(`${SEED}.*\\.\\w+$`), format);
  }
});

visit('a record is deleted after a confirmation', { allow: [/404/] }, async (page) => {
  await open(page, on.scripted.origin, `messages/${NOURL}`);
  await by(page, 'delete').click();
  await by(page, 'delete-sure').waitFor();
  await accessible(page, 'confirmation');
  assert.equal(await page.evaluate(() => document.activeElement.dataset.test), 'delete-no', 'the cancel button has the focus');
  await by(page, 'delete-no').click();
  assert.equal(await by(page, 'delete-sure').isVisible(), false);
  await by(page, 'delete').click();
  await by(page, 'delete-yes').click();
  await by(page, 'page-messages').waitFor();
  await listed(page, 25, 'afterwards');
  assert.equal((await fetch(`${on.scripted.origin}/citations/${NOURL}`)).status, 404);
  await open(page, on.scripted.origin, `messages/${NOURL}`);
  await by(page, 'unknown-record').waitFor();
  await accessible(page, 'unknown');
});

visit('the record of a message in flight is updated live', async (page) => {
  const asking = fetch(`${on.scripted.origin}/v1/chat/completions`, {
    method: 'POST', headers: { 'content-type': 'application/json', 'x-citetap-profile': 'native' },
    body: JSON.stringify({ model: 'gated-model', stream: true, messages: [{ role: 'user', content: '?' }] }),
  });
  const reader = (await asking).body.getReader();
  const decoder = new TextDecoder();
  let text = '';
  const id = await until(async () => {
    text += decoder.decode((await reader.read()).value, { stream: true });
    return /"id":"(chatcmpl-\d+)"/.exec(text)?.[1];
  }, 'its id');
  await open(page, on.scripted.origin, `messages/${id}`);
  await by(page, 'in-flight').waitFor();
  await accessible(page, 'in flight');
  on.up.release();
  await until(() => on.up.waiting() > 0, 'the second gate');
  on.up.release();
  while (!(await reader.read()).done);
  await by(page, 'sources').locator('li').first().waitFor();
  await by(page, 'badge-complete').first().waitFor();
});

visit('domains: a chart, a table, other periods, CSV', async (page) => {
  await open(page, on.demo.origin, 'domains');
  await by(page, 'chart').locator('svg').waitFor();
  assert.ok((await by(page, 'domain-table').locator('tbody tr').count()) >= 3);
  assert.ok((await by(page, 'chart').locator('svg rect, svg path').count()) > 10, 'bars of many days');
  assert.equal(await by(page, 'chart').locator('svg').getAttribute('role'), 'img');
  await accessible(page, 'light');
  const fills = () => by(page, 'chart').locator('svg rect, svg path').evaluateAll((all) => [...new Set(all.map((it) => getComputedStyle(it).fill))].filter((fill) => !/none|rgba\(0, 0, 0, 0\)/.test(fill)));
  const light = await fills();
  assert.ok(light.length >= 2, 'sites have different colours');
  await page.emulateMedia({ colorScheme: 'dark' });
  assert.notDeepEqual(await fills(), light);
  await accessible(page, 'dark');

  // By keyboard, day by day.
  const plot = by(page, 'chart-plot');
  await plot.focus();
  const values = new Set();
  for (let at = 0; at < 4; at++) {
    values.add(await plot.getAttribute('aria-valuetext'));
    await page.keyboard.press('ArrowLeft');
  }
  assert.equal(values.size, 4);

  const total = async () => Number(/Total ([\d,]+)/.exec((await by(page, 'chart-day').innerText()).replace(/\s+/g, ' '))?.[1].replaceAll(',', '') ?? NaN);
  await plot.evaluate((it) => it.blur());
  await by(page, 'period-7').click();
  await until(async () => (await by(page, 'period-7').getAttribute('aria-pressed')) === 'true', 'the other period');
  await page.waitForTimeout(300);
  const week = await total();
  await by(page, 'period-30').click();
  await until(async () => (await total()) > week, 'more in a month');
  await page.reload();
  await by(page, 'chart').locator('svg').waitFor();
  assert.equal(await by(page, 'period-30').getAttribute('aria-pressed'), 'true', 'a reload keeps the period');

  const downloading = page.waitForEvent('download');
  await by(page, 'domains-csv').click();
  const csv = fs.readFileSync(await (await downloading).path(), 'utf8').trim().split(/\r?\n/);
  assert.match(csv[0], /domain|site/i);
  const first = await by(page, 'domain-table').locator('tbody tr').first().locator('th, td').first().innerText();
  assert.ok(csv.some((line) => line.includes(first.trim())), `${first} in ${csv.slice(0, 4)}`);
  assert.ok(csv.length > 3);

  await by(page, 'domains-provider').selectOption('openai');
  await until(async () => (await total()) < 10_000 && (await by(page, 'domain-table').locator('tbody tr').count()) > 0, 'one provider');
  // The link of a site leads to its messages.
  await by(page, 'domain-table').locator('tbody a').first().click();
  await by(page, 'page-messages').waitFor();
  await until(async () => (await rows(page).count()) > 0, 'its messages');
  assert.ok(await by(page, 'filter-domain').inputValue());
});

visit('status: streams, rates, store, faults', { allow: [/502|ERR_INCOMPLETE/] }, async (page) => {
  await open(page, on.scripted.origin, 'status');
  await by(page, 'tiles').waitFor();
  await until(async () => /Ready/.test(await by(page, 'readiness').innerText()), 'that it is ready');
  assert.match(await by(page, 'version').innerText(), /\d+\.\d+\.\d+/);
  assert.match(await by(page, 'store').innerText(), /sqlite[^]*healthy/i);
  assert.ok((await by(page, 'route-table').locator('tbody tr').count()) >= 4);
  await accessible(page, 'light');
  await page.emulateMedia({ colorScheme: 'dark' });
  await accessible(page, 'dark');
  await page.emulateMedia({ colorScheme: 'light' });

  await stored(on.scripted.origin, ['dead', 'cut']);
  await until(async () => /dead/.test(await by(page, 'faults').innerText()) && /cut/.test(await by(page, 'faults').innerText()), 'the faults');
  assert.match(await by(page, 'fault-table').innerText(), /cannot be reached/);
  assert.match(await by(page, 'fault-table').innerText(), /broke off/);
  await accessible(page, 'with faults');

  // A stream in flight is counted.
  const asking = fetch(`${on.scripted.origin}/slow/v1/chat/completions`, { method: 'POST', body: '{"stream":true}' });
  await until(async () => /1/.test(await by(page, 'tile-streams').locator('strong').innerText()), 'a stream');
  await (await asking).body.cancel();
  await page.reload();
  await by(page, 'tiles').waitFor();
});

// ---- an empty store ----

visit('with an empty store, each page has instructions', async (page) => {
  await open(page, on.empty.origin, 'messages');
  await by(page, 'empty-store').waitFor();
  assert.match(await by(page, 'page-messages').innerText(), /curl/);
  await accessible(page, 'messages');
  await by(page, 'nav-domains').click();
  await by(page, 'domains-empty').waitFor();
  await accessible(page, 'domains');
  await by(page, 'nav-status').click();
  await by(page, 'no-faults').waitFor();
  await accessible(page, 'status');
  await by(page, 'nav-chat').click();
  await by(page, 'question').waitFor();
  await accessible(page, 'chat');
  // The first answer is listed.
  await ask(page, 'seed');
  await by(page, 'nav-messages').click();
  await listed(page, 1, 'the first');
});

// ---- every page in every appearance ----

const PAGES = { chat: ['', 'composer'], messages: ['messages', 'message'], record: [`messages/${MERGED}`, 'scores'], domains: ['domains', 'domain-table'], status: ['status', 'tiles'] };
for (const [name, [hash, ready]] of Object.entries(PAGES)) {
  visit(`${name}: light, dark, Chinese, phone, forced colours, no motion, reloaded`, async (page) => {
    await open(page, on.scripted.origin, hash);
    const there = () => by(page, ready).first().waitFor();
    await there();
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor + getComputedStyle(document.documentElement).backgroundColor);
    const light = await background();
    await accessible(page, 'light');
    await page.emulateMedia({ colorScheme: 'dark' });
    assert.notEqual(await background(), light, 'dark is dark');
    await accessible(page, 'dark');
    await page.emulateMedia({ colorScheme: 'light', forcedColors: 'active', reducedMotion: 'reduce' });
    assert.equal(await page.evaluate(() => document.getAnimations().filter((it) => it.playState === 'running' && it.effect.getTiming().duration > 0).length), 0);
    await accessible(page, 'forced colours');
    await page.emulateMedia({ colorScheme: 'light', forcedColors: 'none', reducedMotion: 'no-preference' });
    await by(page, 'language').click();
    assert.equal(await page.evaluate(() => document.documentElement.lang), 'zh-CN');
    await accessible(page, 'Chinese');
    await page.reload();
    await there();
    assert.equal(await page.evaluate(() => document.documentElement.lang), 'zh-CN', 'the language is remembered');
    await page.setViewportSize(PHONE);
    await fits(page, 'a phone, Chinese');
    await accessible(page, 'a phone');
    await by(page, 'language').click();
    await fits(page, 'a phone');
    await page.setViewportSize({ width: 768, height: 900 });
    await fits(page, 'a tablet');
    await page.setViewportSize(DESKTOP);
    await fits(page);
  });
}

visit('the theme is switched by hand, and remembered', async (page) => {
  await open(page, on.scripted.origin);
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await background();
  for (let at = 0; at < 3 && (await page.evaluate(() => document.documentElement.dataset.theme)) !== 'dark'; at++) await by(page, 'theme').click();
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), 'dark');
  const dark = await background();
  assert.notEqual(dark, light);
  await page.reload();
  await by(page, 'question').waitFor();
  assert.equal(await background(), dark);
  const turn = await ask(page, 'seed');
  const chip = await turn.locator('.cite-chip').evaluate((it) => getComputedStyle(it).backgroundColor);
  await by(page, 'theme').click();
  await by(page, 'theme').click();
  assert.notEqual(await turn.locator('.cite-chip').evaluate((it) => getComputedStyle(it).backgroundColor), chip, 'the component follows');
});
