// A page with only the component, under the content security policy of citetap's pages.

import { CSP } from './files.mjs';

/** Opens the page on the origin of a citetap. */
export async function bare(page, origin, { body = '', lang = 'en' } = {}) {
  const html = `<!doctype html><html lang="${lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark"><title>Bare</title><link rel="icon" href="data:,"><script type="module" src="/component.js"></script></head>
    <body><main><h1>Bare</h1>${body}</main></body></html>`;
  await page.context().route(`${origin}/bare`, (route) => route.fulfill({ contentType: 'text/html', headers: { 'content-security-policy': CSP }, body: html }));
  await page.visit(`${origin}/bare`);
  await page.evaluate(() => {
    // axe cannot determine the default canvas colour of the browser.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('html { background: light-dark(#fff, #15181d); color: light-dark(#111, #eee) }');
    document.adoptedStyleSheets.push(sheet);
    return customElements.whenDefined('cite-answer').then(() => {});
  });
}

/**
 * Adds a <cite-answer> that sends a request to a route; returns its locator when the answer has ended.
 * `profile`: use the OpenAI endpoint and that dialect. `path`: another path than the route's.
 */
export async function answer(page, route, { attributes = {}, profile, model = `${route}-model`, path, headers, wait = true } = {}) {
  await page.evaluate(({ route, attributes, profile, model, path, headers }) => {
    const it = document.createElement('cite-answer');
    globalThis.answer = it;
    globalThis.events = [];
    globalThis.ended = new Promise((resolve) => it.addEventListener('cite-end', (event) => resolve(event.detail)));
    it.addEventListener('cite-event', (event) => globalThis.events.push(event.detail));
    for (const [name, value] of Object.entries(attributes)) it.setAttribute(name, value);
    it.setAttribute('src', path ?? (profile ? '/v1/chat/completions' : `/${route}/ask`));
    it.request = { model, stream: true, messages: [{ role: 'user', content: '?' }] };
    it.headers = { ...headers, ...(profile && { 'x-citetap-profile': profile }) };
    document.querySelector('main').append(it);
  }, { route, attributes, profile, model, path, headers });
  if (wait) await page.evaluate(() => globalThis.ended);
  return page.locator('cite-answer');
}

/** The focused element, also within shadow roots: its tag, class and text. */
export const focused = (page) =>
  page.evaluate(() => {
    let at = document.activeElement;
    while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
    return `${at?.localName}${at?.className ? `.${at.className}` : ''} ${at?.textContent.trim()}`;
  });

/** Records when the card opens and closes, on the page's clock. */
export const recordCardTimes = (page) =>
  page.evaluate(() => {
    const find = (root) => [...root.querySelectorAll('*')].some((it) => it.matches('cite-card:popover-open') || (it.shadowRoot && find(it.shadowRoot)));
    globalThis.clock = { over: 0, out: 0, opened: 0, closed: 0 };
    let was = false;
    const look = () => {
      const is = find(document);
      if (is !== was) globalThis.clock[is ? 'opened' : 'closed'] = performance.now();
      was = is;
      requestAnimationFrame(look);
    };
    look();
    const chip = (event) => event.composedPath()[0].closest?.('.cite-chip');
    document.addEventListener('pointerover', (event) => chip(event) && (globalThis.clock.over = performance.now()), true);
    document.addEventListener('pointerout', (event) => (chip(event) || event.composedPath().some((it) => it.localName === 'cite-card')) && (globalThis.clock.out = performance.now()), true);
  });

/** The visible text of an element, including shadow roots. */
export const shown = (it) =>
  it.evaluate((it) => {
    const read = (one) => (one.shadowRoot ? [...one.shadowRoot.children].map(read).join('\n') : one.querySelector('cite-list, cite-answer') ? [...one.children].map(read).join('\n') : one.innerText);
    return read(it).replaceAll('\u2060', '');
  });
