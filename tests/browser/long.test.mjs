// A long answer stays smooth: 20,000 characters, 50 sources, 40 deltas a second.

import { accessible, assert, fits, servers, until, visit } from './lib/harness.mjs';
import { answer, bare } from './lib/bare.mjs';
import { measure, measured, smoothly } from './lib/measure.mjs';
import { serve } from './lib/process.mjs';
import { LONG, LONG_SOURCES, longText } from './lib/texts.mjs';
import { ROUTES, upstream } from './lib/upstream.mjs';

const on = await servers({ up: () => upstream(), scripted: ({ up }) => serve(ROUTES(up.origin)) });
const LIMIT = 100;
// Limit for the complete answer at once, which is one large rendering.
const LIMIT_AT_ONCE = 250;
const TEXT = longText();

/** A rendered text without blanks, to compare. */
const words = (text) => text.replaceAll('\u2060', '').replace(/\s+/g, '');

/** The HTML that the server renders from the whole text. */
async function expected() {
  const record = { citations: Array.from({ length: LONG_SOURCES }, (_, at) => ({ number: at + 1, url: `https://s${at + 1}.example.com/` })) };
  const answer = await fetch(`${on.scripted.origin}/render`, { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ style: 'html', text: TEXT, record }) });
  const { html } = await answer.json();
  return html;
}

for (const [route, seconds] of [['long', 20], ['long-openai', 10], ['fast', 0]]) {
  visit(`the ${route} answer is smooth, and whole`, { timeout: 240_000 }, async (page) => {
    let it;
    let took;
    let lengths;
    const smooth = await smoothly(`${route}, ${LONG} characters, ${LONG_SOURCES} sources, ${seconds} s`, seconds ? LIMIT : LIMIT_AT_ONCE, async () => {
      await bare(page, on.scripted.origin);
      await measure(page);
      const began = Date.now();
      lengths = [];
      const length = () => page.evaluate(() => globalThis.answer?.shadowRoot.querySelector('[part~=answer]').textContent.length ?? 0);
      const watching = setInterval(() => length().then((now) => lengths.push(now), () => {}), 1000);
      it = await answer(page, route);
      clearInterval(watching);
      took = (Date.now() - began) / 1000;
      await page.waitForTimeout(300);
      return measured(page);
    });

    assert.equal(await it.evaluate((it) => it.text), TEXT, 'no text is dropped');
    const html = await expected();
    const [got, should] = await it.evaluate((it, html) => {
      const of = (root) => {
        for (const chip of root.querySelectorAll('.cite-chip, sup[data-citation]')) chip.remove();
        return root.textContent;
      };
      const whole = document.createElement('template');
      whole.innerHTML = html;
      return [of(it.shadowRoot.querySelector('[part~=answer]').cloneNode(true)), of(whole.content)];
    }, html);
    assert.equal(words(got), words(should), 'no rendered text is dropped');
    assert.equal(await it.locator('cite-list li').count(), LONG_SOURCES);
    assert.equal(await it.locator('.cite-chip:not([href])').count(), 0);
    assert.ok(took >= seconds * 0.9, `it took ${took} s`);
    if (seconds) assert.ok(lengths.filter((length, at) => length > (lengths[at - 1] ?? 0)).length >= seconds * 0.6, `it was rendered while it streamed: ${lengths}`);
    assert.ok(smooth.longest < (seconds ? LIMIT : LIMIT_AT_ONCE), `a task of ${smooth.longest} ms`);
    if (seconds) assert.ok(smooth.gap < 250, `no frame for ${smooth.gap} ms`);
    await fits(page);
    if (!seconds) await accessible(page);
  });
}
