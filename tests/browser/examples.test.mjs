// Runs the examples in web/examples as their instructions say.

import { execFile, spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { files } from './lib/files.mjs';
import { accessible, assert, fits, PHONE, servers, until, visit } from './lib/harness.mjs';
import { shown } from './lib/bare.mjs';
import { buildFolder, web } from './lib/paths.mjs';
import { demo } from './lib/process.mjs';

const pages = new Map();
const on = await servers({ demo: () => demo(), site: () => files(web, pages) });

// Replace the address of the demo.
const html = fs.readFileSync(path.join(web, 'examples/plain.html'), 'utf8').replaceAll('http://127.0.0.1:8787', on.demo.origin);
pages.set('/plain', { html });
fs.mkdirSync(path.join(buildFolder, 'run'), { recursive: true });
fs.writeFileSync(path.join(buildFolder, 'run/plain.html'), html);

async function plain(page) {
  const answer = page.locator('cite-answer');
  await answer.locator('.cite-chip').first().waitFor();
  const kept = page.locator('cite-list#kept');
  await kept.locator('li').first().waitFor();
  assert.equal(await kept.locator('li').count(), 6);
  assert.equal(await answer.locator('cite-list li').count(), 6);

  const article = page.locator('#article');
  assert.equal(await article.locator('sup').count(), 0, 'all were upgraded');
  assert.deepEqual(await article.locator('.cite-chip').allInnerTexts(), ['1 +1', '3']);
  await article.locator('.cite-chip').first().hover();
  const card = page.locator('cite-card:popover-open');
  await card.waitFor();
  assert.match(await shown(card), /Heat pumps in cold climates[^]*Across 120 monitored homes/);
  assert.match(await page.locator('#tagged').innerText(), /火灾\[<sup data-citation='.*'>1<\/sup>\]\(https:\/\/news\.example\.com\/hk\/fire\)/);
}

visit('a plain page on another origin', { origins: () => [on.demo.origin] }, async (page) => {
  await page.visit(`${on.site.origin}/plain`);
  await plain(page);
  await page.keyboard.press('Escape');
  await accessible(page);
  await page.setViewportSize(PHONE);
  await fits(page);
});

visit('a plain page, opened as a file, in the dark', { origins: () => [on.demo.origin], files: true, context: { colorScheme: 'dark' } }, async (page) => {
  await page.visit(pathToFileURL(path.join(buildFolder, 'run/plain.html')).href);
  await plain(page);
  await page.keyboard.press('Escape');
  await accessible(page);
});

// ---- React and the AI SDK ----

const vite = path.join(buildFolder, 'use-chat/node_modules/vite/bin/vite.js');
const folder = path.join(buildFolder, 'use-chat');
for (const name of ['index.html', 'main.jsx', 'style.css', 'vite.config.js']) fs.copyFileSync(path.join(web, 'examples/use-chat', name), path.join(folder, name));
const env = { ...process.env, CITETAP_URL: on.demo.origin, NO_COLOR: '1' };
await promisify(execFile)(process.execPath, [vite, 'build'], { cwd: folder, env });
const preview = spawn(process.execPath, [vite, 'preview', '--host', '127.0.0.1', '--port', '0'], { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] });
after(() => preview.kill('SIGTERM'));
let output = '';
preview.stdout.on('data', (data) => (output += data));
const served = await until(() => /http:\/\/127\.0\.0\.1:\d+/.exec(output)?.[0], 'vite');

visit("the AI SDK's useChat", async (page) => {
  await page.visit(served);
  await accessible(page, 'before asking');
  await page.getByRole('button', { name: 'Ask' }).click();
  const answer = page.locator('cite-answer');
  await answer.locator('.cite-chip:not(.waits)').first().waitFor();
  await page.getByText('6 sources').click();
  assert.equal(await page.locator('.sources li a').count(), 6);
  await until(async () => (await answer.evaluate((it) => it.text)).endsWith('them.'), 'the whole text');
  await until(async () => /skipped one of them\./.test(await shown(answer)), 'the whole text to be shown');
  assert.equal(await page.getByRole('status').filter({ hasText: /failed/ }).count(), 0);

  await answer.locator('.cite-chip').first().hover();
  const card = page.locator('cite-card:popover-open');
  await card.waitFor();
  assert.match(await shown(card), /Heat pumps in cold climates/);
  await page.keyboard.press('Escape');
  await accessible(page, 'after the answer');

  // A follow-up question.
  await page.getByLabel('Question').fill('And what about backup heat?');
  await page.getByRole('button', { name: 'Ask' }).click();
  await until(async () => (await page.locator('cite-answer').count()) === 2, 'a second answer');
  await until(async () => (await page.locator('cite-answer').nth(1).locator('.cite-chip:not(.waits)').count()) > 3, 'its chips');
  await page.setViewportSize(PHONE);
  await fits(page);
});
