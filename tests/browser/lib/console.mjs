// Page objects of the console; elements are found by their data-test names.

import assert from 'node:assert/strict';
import { shown } from './bare.mjs';
import { until } from './until.mjs';

export const by = (page, name) => page.locator(`[data-test="${name}"]`);

/** Opens a page of the console: '' (chat), 'messages', 'domains', 'status', or `messages/ID`. */
export async function open(page, origin, hash = '') {
  await page.visit(`${origin}/#/${hash}`);
  await page.locator('main > *').first().waitFor();
}

/** Waits until an answer has ended in this state and is rendered completely. */
export async function ended(turn, state = 'complete') {
  const got = await until(async () => {
    const now = await turn.getAttribute('data-state');
    return now !== 'streaming' && now;
  }, 'an end', 60_000);
  assert.equal(got, state, await turn.innerText());
  // The last rendering may still be pending: wait until the text is stable.
  let seen = ['', '', ''];
  await until(async () => {
    seen = [...seen.slice(1), await shown(turn.locator('[data-test=answer]'))];
    await new Promise((resolve) => setTimeout(resolve, 70));
    return seen.every((text) => text === seen[0]);
  }, 'a stable text');
}

/** Asks in the chat and waits until the answer ends in this state; returns its turn. */
export async function ask(page, route, { question = 'What is it?', state = 'complete', options = {} } = {}) {
  await until(async () => (await by(page, 'route').locator('option').count()) > 1 || (await by(page, 'route').inputValue()) === route, 'the routes');
  await by(page, 'route').selectOption(route);
  if (Object.keys(options).length && !(await by(page, 'options').evaluate((it) => it.open))) await by(page, 'options').locator('summary').click();
  for (const [name, value] of Object.entries(options)) await by(page, name).selectOption(value);
  const before = await by(page, 'turn').count();
  await by(page, 'question').fill(question);
  await by(page, 'question').press('Enter');
  const turn = by(page, 'turn').nth(before);
  await turn.waitFor();
  if (state) await ended(turn, state);
  return turn;
}

/** Stores answers without the browser; returns their message ids. */
export async function stored(origin, names, headers = {}) {
  const ids = [];
  for (const name of names) {
    const answer = await fetch(`${origin}/v1/chat/completions`, {
      method: 'POST', headers: { 'content-type': 'application/json', 'x-citetap-profile': 'openai', ...headers },
      body: JSON.stringify({ model: `${name}-model`, stream: true, messages: [{ role: 'user', content: '?' }] }),
    });
    const text = await answer.text().catch(() => '');
    const record = /"citetap":(\{.*\})/.exec(text)?.[1];
    ids.push(/"messageId":"([^"]+)"/.exec(record ?? '')?.[1]);
  }
  return ids;
}
