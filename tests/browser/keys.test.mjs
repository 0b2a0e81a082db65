// A citetap with tenants: the console asks for the key once, keeps it for the tab, and sends it only to citetap.

import fs from 'node:fs';
import { accessible, assert, fits, PHONE, servers, until, visit } from './lib/harness.mjs';
import { answer, bare } from './lib/bare.mjs';
import { ask, by, open, stored } from './lib/console.mjs';
import { serve } from './lib/process.mjs';
import { ROUTES, upstream } from './lib/upstream.mjs';

const [ACME, OTHER] = ['acme-key-of-the-tests', 'other-key-of-the-tests'];
const on = await servers({ up: () => upstream(), keyed: ({ up }) => serve(ROUTES(up.origin), { tenants: { acme: ACME, other: OTHER } }) });
const [ID] = await stored(on.keyed.origin, ['seed'], { 'x-citetap-key': ACME });
const REFUSED = { allow: [/401/] };

async function enter(page, key) {
  await by(page, 'key-input').fill(key);
  await by(page, 'key-use').click();
}

/** Checks that the key is not in the URL, persistent storage, cookies or the page. */
async function keyIsHidden(page) {
  assert.ok(!page.url().includes('key-of-the-tests'));
  const kept = await page.evaluate(() => [JSON.stringify(localStorage), document.cookie, JSON.stringify(history.state), document.documentElement.outerHTML].join());
  assert.ok(!kept.includes('key-of-the-tests'));
}

visit('the key is asked for once, and kept for the tab', REFUSED, async (page, { context }) => {
  const requests = [];
  page.on('request', (request) => requests.push([request.url(), request.headers()['x-citetap-key'] ?? '']));
  await open(page, on.keyed.origin, 'messages');
  await by(page, 'key-dialog').waitFor();
  await accessible(page, 'asked for a key');
  assert.equal(await by(page, 'key-input').getAttribute('type'), 'password');

  await enter(page, 'no such key');
  await by(page, 'key-wrong').waitFor();
  assert.match(await by(page, 'key-wrong').innerText(), /not a key/);
  await accessible(page, 'wrong key');
  await enter(page, ACME);
  await by(page, 'message').first().waitFor();
  assert.equal(await by(page, 'message').count(), 1);
  assert.equal(await by(page, 'key-dialog').count(), 0);
  await keyIsHidden(page);

  await page.reload();
  await by(page, 'message').first().waitFor();
  assert.equal(await by(page, 'key-dialog').count(), 0, 'a reload does not ask again');
  for (const [name, ready] of [['domains', 'domain-table'], ['status', 'tiles'], ['chat', 'question']]) {
    await by(page, `nav-${name}`).click();
    await by(page, ready).waitFor();
    assert.equal(await by(page, 'key-dialog').count(), 0, name);
  }

  const turn = await ask(page, 'seed');
  assert.equal(await turn.locator('cite-list li').count(), 3);
  assert.equal(await turn.locator('.cite-chip[href]').count(), 1);
  await keyIsHidden(page);
  assert.ok(requests.every(([url]) => !url.includes('key-of-the-tests')), 'no address has it');
  assert.ok(!JSON.stringify(on.up.requests).includes('key-of-the-tests'), 'the upstream does not see it');

  // Another tab has no key; forgetting the key asks again.
  const other = await context.newPage();
  await other.goto(`${on.keyed.origin}/#/messages`);
  await by(other, 'key-dialog').waitFor();
  await enter(other, OTHER);
  await by(other, 'empty-store').waitFor();
  await other.close();
  await by(page, 'key-forget').click();
  await by(page, 'key-dialog').waitFor();
});

visit('a cancelled key dialog leaves a message that a key is needed', { allow: [/401/], context: { viewport: PHONE } }, async (page) => {
  await open(page, on.keyed.origin, 'messages');
  await by(page, 'key-dialog').waitFor();
  await fits(page, 'the dialog on a phone');
  await page.keyboard.press('Escape');
  await until(async () => /key is needed/i.test(await page.locator('main').innerText()), 'what is missing');
  await accessible(page);
});

visit('a record is exported and deleted with a key', REFUSED, async (page) => {
  await open(page, on.keyed.origin, `messages/${ID}`);
  await enter(page, ACME);
  await by(page, 'sources').locator('li').first().waitFor();
  const downloading = page.waitForEvent('download');
  await by(page, 'export-bibtex').click();
  assert.match(fs.readFileSync(await (await downloading).path(), 'utf8'), /@\w+\{/);
  await by(page, 'delete').click();
  await by(page, 'delete-yes').click();
  await by(page, 'page-messages').waitFor();
  assert.equal((await fetch(`${on.keyed.origin}/citations/${ID}`, { headers: { 'x-citetap-key': ACME } })).status, 404);
});

visit('another tenant does not see the record', { allow: [/40[14]/] }, async (page) => {
  const [id] = await stored(on.keyed.origin, ['seed'], { 'x-citetap-key': ACME });
  await open(page, on.keyed.origin, `messages/${id}`);
  await enter(page, OTHER);
  await by(page, 'unknown-record').waitFor();
});

visit('the component sends the key it is given with every call', async (page) => {
  await bare(page, on.keyed.origin);
  const it = await answer(page, 'merged', { headers: { 'x-citetap-key': ACME } });
  assert.equal((await page.evaluate(() => globalThis.ended)).complete, true);
  assert.equal(await it.locator('cite-list li').count(), 4);
  assert.equal(await it.locator('[part~=answer] p').first().evaluate((p) => p.className), '', 'it was rendered by the server');
});

visit('without a key the component shows the error', { allow: [/401/] }, async (page) => {
  await bare(page, on.keyed.origin);
  const it = await answer(page, 'merged');
  assert.match(await it.getByRole('alert').innerText(), /x-citetap-key|key/);
});
