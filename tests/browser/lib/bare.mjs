// A page with nothing but the component, under the content policy of citetap's own pages.

import { CSP } from './files.mjs';

/** Goes to it, on the origin of a citetap. */
export async function bare(page, origin, { body = '', lang = 'en' } = {}) {
  const html = `<!doctype html><html lang="${lang}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark"><title>Bare</title><link rel="icon" href="data:,"><script type="module" src="/component.js"></script></head>
    <body><main><h1>Bare</h1>${body}</main></body></html>`;
  await page.context().route(`${origin}/bare`, (route) => route.fulfill({ contentType: 'text/html', headers: { 'content-security-policy': CSP }, body: html }));
  await page.visit(`${origin}/bare`);
  await page.evaluate(() => {
    // axe does not know the colour of a canvas that the page leaves to the browser.
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('html { background: light-dark(#fff, #15181d); color: light-dark(#111, #eee) }');
    document.adoptedStyleSheets.push(sheet);
    return customElements.whenDefined('cite-answer').then(() => {});
  });
}

/**
 * Puts an answer into it that asks a route by itself; gives its locator once it has ended.
 * `profile`: ask as OpenAI clients do, and in that dialect. `path`: what to ask, other than the route.
 */
export async function answer(page, route, { attributes = {}, profile, model = `${route}-model`, path, headers, wait = true } = {}) {
  await page.evaluate(({ route, attributes, profile, model, path, headers }) => {
    const it = document.createElement('cite-answer');
    globalThis.answer = it;
    globalThis.told = [];
    globalThis.ended = new Promise((resolve) => it.addEventListener('cite-end', (event) => resolve(event.detail)));
    it.addEventListener('cite-event', (event) => globalThis.told.push(event.detail));
    for (const [name, value] of Object.entries(attributes)) it.setAttribute(name, value);
    it.setAttribute('src', path ?? (profile ? '/v1/chat/completions' : `/${route}/ask`));
    it.request = { model, stream: true, messages: [{ role: 'user', content: '?' }] };
    it.headers = { ...headers, ...(profile && { 'x-citetap-profile': profile }) };
    document.querySelector('main').append(it);
  }, { route, attributes, profile, model, path, headers });
  if (wait) await page.evaluate(() => globalThis.ended);
  return page.locator('cite-answer');
}

/** The element that has the focus, within whatever shadows: its tag, class and text. */
export const focused = (page) =>
  page.evaluate(() => {
    let at = document.activeElement;
    while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
    return `${at?.localName}${at?.className ? `.${at.className}` : ''} ${at?.textContent.trim()}`;
  });

/** Takes down when the card opens and closes, on the page's own clock. */
export const clocked = (page) =>
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

/** What an element shows, its shadow's text included. */
export const shown = (it) =>
  it.evaluate((it) => {
    const read = (one) => (one.shadowRoot ? [...one.shadowRoot.children].map(read).join('\n') : one.querySelector('cite-list, cite-answer') ? [...one.children].map(read).join('\n') : one.innerText);
    return read(it).replaceAll('\u2060', '');
  });
