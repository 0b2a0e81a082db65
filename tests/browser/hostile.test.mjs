// Strangers' text stays text: in answers, titles, excerpts, addresses, queries, stages and errors.

import { assert, harm, servers, until, visit } from './lib/harness.mjs';
import { answer, bare, shown } from './lib/bare.mjs';
import { serve } from './lib/process.mjs';
import { BAD_URLS, PAYLOADS } from './lib/texts.mjs';
import { ROUTES, upstream } from './lib/upstream.mjs';

const on = await servers({ up: () => upstream(), scripted: ({ up }) => serve(ROUTES(up.origin)) });
// Marks that turn the reading direction are taken out on the way.
const squeezed = (text) => text.replace(/[\u202a-\u202e\u2066-\u2069]/g, '').replace(/\s+/g, ' ').trim();

/** Everything that could be opened is opened, and everything that could be pointed at is pointed at. */
async function touchAll(page) {
  for (const chip of await page.locator('.cite-chip').all().then((all) => all.slice(0, 6))) {
    await chip.scrollIntoViewIfNeeded();
    await chip.hover();
    await page.locator('cite-card:popover-open').waitFor();
    assert.deepEqual(await harm(page), []);
    await page.keyboard.press('Escape');
  }
}

for (const route of ['hostile', 'hostile-openai', 'hostile-tencent']) {
  visit(`${route}: ${PAYLOADS.length} payloads, ${BAD_URLS.length} bad addresses`, { timeout: 120_000 }, async (page) => {
    await bare(page, on.scripted.origin);
    const it = await answer(page, route);
    assert.deepEqual(await harm(page), []);
    const list = await it.locator('cite-list').evaluate((list) => [...list.shadowRoot.querySelectorAll('li')].map((row) => ({ title: row.querySelector('.title').textContent, href: row.querySelector('a.title')?.href ?? null, all: row.textContent })));
    // An event has a limit, so sources or their excerpts may have been left out of it.
    const record = await page.evaluate(() => globalThis.answer.record);
    const kept = record.truncated ? PAYLOADS.slice(0, record.citations.length) : PAYLOADS;
    assert.ok(kept.length > 25);
    for (const [at, payload] of kept.entries()) {
      const row = list.find(({ title }) => squeezed(title) === squeezed(`T${payload}`));
      assert.ok(row, `the title of payload ${at} is there as text: ${payload}`);
      if (record.citations[at].content) assert.ok(squeezed(row.all).includes(squeezed(record.citations[at].content)), `and its excerpt: ${squeezed(row.all)}`);
    }
    for (const { href } of list) assert.ok(href === null || /^https?:\/\//.test(href), href);
    // As code, every payload is to be read in the answer itself.
    const text = squeezed(await shown(it));
    assert.ok(text.includes('The end is reached'), 'to the end');
    for (const payload of PAYLOADS) assert.ok(text.includes(squeezed(payload)) || text.includes(squeezed(payload.replace('\t', ''))), payload);
    await touchAll(page);
    await page.waitForTimeout(300);
    assert.deepEqual(await harm(page), []);
  });
}

visit('an error that means harm', async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'hostile-error');
  const alert = await it.getByRole('alert').innerText();
  for (const payload of PAYLOADS.slice(0, 8)) assert.ok(squeezed(alert).includes(squeezed(payload)), alert);
  assert.deepEqual(await harm(page), []);
});

visit('icons, where they are allowed, are pictures from the web and nothing else', { outside: /^https:\/\/evil\.example\/icon\.png$/, allow: [/Content Security Policy directive: "img-src/] }, async (page) => {
  await bare(page, on.scripted.origin);
  const asked = [];
  page.on('request', (request) => asked.push(request.url()));
  await answer(page, 'hostile', { attributes: { icons: '' } });
  await until(() => asked.some((url) => url.startsWith('https://evil.example')), 'an icon');
  await page.evaluate(() => (globalThis.__broken.length = 0));
});

visit('upgrade of markup that means harm', async (page) => {
  const attribute = (text) => text.replaceAll('&', '&amp;').replaceAll('"', '&quot;');
  const body = [...PAYLOADS, ...BAD_URLS].map((payload, at) => `<p>x<sup data-citation="${attribute(JSON.stringify({ id: at, url: payload, title: `T${payload}`, content: `S${payload}` }))}">${at}</sup></p>`).join('');
  await bare(page, on.scripted.origin, { body });
  await page.evaluate(async () => (await import('/component.js')).upgrade(document, { icons: true }));
  assert.deepEqual(await harm(page), []);
  assert.equal(await page.locator('.cite-chip').count(), PAYLOADS.length + BAD_URLS.length);
  const third = page.locator('.cite-chip').nth(2);
  await third.hover();
  await until(async () => (await shown(page.locator('cite-card:popover-open').first()).catch(() => '')).includes(`T${PAYLOADS[2]}`), 'its card');
  await touchAll(page);
});
