// Untrusted text stays text: in answers, titles, excerpts, URLs, queries, stages and errors.

import { assert, harm, servers, until, visit } from './lib/harness.mjs';
import { answer, bare, shown } from './lib/bare.mjs';
import { serve } from './lib/process.mjs';
import { BAD_URLS, PAYLOADS } from './lib/texts.mjs';
import { ROUTES, upstream } from './lib/upstream.mjs';

const on = await servers({ up: () => upstream(), scripted: ({ up }) => serve(ROUTES(up.origin)) });
// citetap removes bidirectional control characters.
const normalized = (text) => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, '').replace(/\s+/g, ' ').trim();

/** Hovers over the first chips, so that their cards open. */
async function hoverChips(page) {
  for (const chip of await page.locator('.cite-chip').all().then((all) => all.slice(0, 6))) {
    await chip.scrollIntoViewIfNeeded();
    await chip.hover();
    await page.locator('cite-card:popover-open').waitFor();
    assert.deepEqual(await harm(page), []);
    await page.keyboard.press('Escape');
  }
}

for (const route of ['hostile', 'hostile-openai', 'hostile-tencent']) {
  visit(`${route}: ${PAYLOADS.length} payloads, ${BAD_URLS.length} bad URLs`, { timeout: 120_000 }, async (page) => {
    await bare(page, on.scripted.origin);
    const it = await answer(page, route);
    assert.deepEqual(await harm(page), []);
    const list = await it.locator('cite-list').evaluate((list) => [...list.shadowRoot.querySelectorAll('li')].map((row) => ({ title: row.querySelector('.title').textContent, href: row.querySelector('a.title')?.href ?? null, all: row.textContent })));
    // The citation event has a size limit, so sources or excerpts may be missing in it.
    const record = await page.evaluate(() => globalThis.answer.record);
    const kept = record.truncated ? PAYLOADS.slice(0, record.citations.length) : PAYLOADS;
    assert.ok(kept.length > 25);
    for (const [at, payload] of kept.entries()) {
      const row = list.find(({ title }) => normalized(title) === normalized(`T${payload}`));
      assert.ok(row, `the title of payload ${at} is there as text: ${payload}`);
      if (record.citations[at].content) assert.ok(normalized(row.all).includes(normalized(record.citations[at].content)), `and its excerpt: ${normalized(row.all)}`);
    }
    for (const { href } of list) assert.ok(href === null || /^https?:\/\//.test(href), href);
    // The answer has every payload as code, which must be shown unchanged.
    const text = normalized(await shown(it));
    assert.ok(text.includes('The end is reached'), 'to the end');
    for (const payload of PAYLOADS) assert.ok(text.includes(normalized(payload)) || text.includes(normalized(payload.replace('\t', ''))), payload);
    await hoverChips(page);
    await page.waitForTimeout(300);
    assert.deepEqual(await harm(page), []);
  });
}

visit('a hostile error message', async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'hostile-error');
  const alert = await it.getByRole('alert').innerText();
  for (const payload of PAYLOADS.slice(0, 8)) assert.ok(normalized(alert).includes(normalized(payload)), alert);
  assert.deepEqual(await harm(page), []);
});

visit('icons, if enabled, are only pictures with http(s) URLs', { outside: /^https:\/\/evil\.example\/icon\.png$/, allow: [/Content Security Policy directive: "img-src/] }, async (page) => {
  await bare(page, on.scripted.origin);
  const requested = [];
  page.on('request', (request) => requested.push(request.url()));
  await answer(page, 'hostile', { attributes: { icons: '' } });
  await until(() => requested.some((url) => url.startsWith('https://evil.example')), 'an icon');
  await page.evaluate(() => (globalThis.__broken.length = 0));
});

visit('upgrade of hostile markup', async (page) => {
  const attribute = (text) => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;');
  const body = [...PAYLOADS, ...BAD_URLS].map((payload, at) => `<p>x<sup data-citation="${attribute(JSON.stringify({ id: at, url: payload, title: `T${payload}`, content: `S${payload}` }))}">${at}</sup></p>`).join('');
  await bare(page, on.scripted.origin, { body });
  await page.evaluate(async () => (await import('/component.js')).upgrade(document, { icons: true }));
  assert.deepEqual(await harm(page), []);
  assert.equal(await page.locator('.cite-chip').count(), PAYLOADS.length + BAD_URLS.length);
  const third = page.locator('.cite-chip').nth(2);
  await third.hover();
  await until(async () => (await shown(page.locator('cite-card:popover-open').first()).catch(() => '')).includes(`T${PAYLOADS[2]}`), 'its card');
  await hoverChips(page);
});
