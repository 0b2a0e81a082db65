// A test with a page: every page is watched, and what no page may do fails the test whatever else it checks.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, test } from 'node:test';
import { axeSource, chromium, chromiumProgram, made } from './paths.mjs';
import { fromDisk } from './files.mjs';
import { PATIENCE, until } from './until.mjs';

export const PHONE = { width: 360, height: 740 };
export const DESKTOP = { width: 1280, height: 860 };

// Hooks outside a suite do not wait for each other, so what tests need is awaited while the file is read.
const browser = await chromium.launch({
  executablePath: chromiumProgram,
  // Nothing leaves the loopback address, whatever a page asks for.
  args: ['--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1', '--no-proxy-server', '--disable-background-networking', '--font-render-hinting=none'],
});
after(() => browser.close());

/** Starts servers for a file's tests, and stops them after; gives what `make` gives, once started. */
export async function servers(make) {
  const running = {};
  after(() => Promise.all(Object.values(running).map((server) => server.stop())));
  for (const [name, starting] of Object.entries(make)) {
    let server = await starting(running);
    if (process.env.BROWSER_FROM_DISK && server.said) {
      const behind = server;
      const front = await fromDisk(behind.origin);
      server = { ...front, said: behind.said, stop: () => Promise.all([front.stop(), behind.stop()]) };
    }
    running[name] = server;
  }
  return running;
}

/** In every page: what broke the content policy, and a trap for scripts that must not run. */
function trap() {
  globalThis.__broken = [];
  globalThis.__pwned = [];
  globalThis.pwned = (n) => globalThis.__pwned.push(n);
  document.addEventListener('securitypolicyviolation', (e) => globalThis.__broken.push(`${e.violatedDirective}: ${e.blockedURI} ${e.sample}`));
}

/**
 * `visit(name, options, body)`: a test whose body gets a watched page.
 * @param {{allow?: RegExp[], origins?: () => string[], outside?: RegExp, context?: object, timeout?: number, hostile?: boolean}} options
 *   allow: console messages that are expected; origins: beside the page's own, those it may ask; outside: pages elsewhere that may be
 *   opened (a stub answers for them); context: for Playwright
 */
export function visit(name, options, body) {
  if (typeof options === 'function') [options, body] = [{}, options];
  return test(name, { timeout: options.timeout ?? 60_000 }, async (t) => {
    const problems = [];
    const allowed = options.allow ?? [];
    const context = await browser.newContext({ viewport: DESKTOP, colorScheme: 'light', locale: 'en-US', timezoneId: 'UTC', ...options.context });
    context.setDefaultTimeout(PATIENCE);
    await context.addInitScript(trap);
    if (options.outside) {
      await context.route((url) => options.outside.test(String(url)), (route) =>
        route.fulfill({ contentType: 'text/html', body: '<!doctype html><title>elsewhere</title><link rel="icon" href="data:,">' }));
    }

    const home = new Set();
    const watch = (page) => {
      page.on('console', (message) => {
        if (!['error', 'warning'].includes(message.type()) || allowed.some((it) => it.test(message.text()))) return;
        problems.push(`console ${message.type()}: ${message.text()} (${message.location().url})`);
      });
      page.on('pageerror', (error) => problems.push(`page error: ${error.stack ?? error}`));
      page.on('dialog', (dialog) => (problems.push(`dialog: ${dialog.message()}`), dialog.dismiss()));
    };
    context.on('page', watch);
    context.on('request', (request) => {
      const url = new URL(request.url());
      if (['data:', 'about:', 'blob:'].includes(url.protocol)) return;
      if (url.protocol === 'file:' && options.files) return;
      if (home.has(url.origin) || options.origins?.().includes(url.origin)) return;
      if (options.outside?.test(request.url())) return;
      problems.push(`asked ${request.method()} ${request.url()}`);
    });

    const page = await context.newPage();
    /** Goes to a page; its origin is what it may ask. */
    page.visit = async (url) => {
      if (url.startsWith('http')) home.add(new URL(url).origin);
      await page.goto(url);
    };
    try {
      await body(page, { context, t, problems });
      for (const each of context.pages()) {
        const { broken, pwned } = await each.evaluate(() => ({ broken: globalThis.__broken ?? [], pwned: globalThis.__pwned ?? [] }));
        problems.push(...broken.map((it) => `content policy: ${it}`), ...pwned.map((it) => `a stranger's script ran: ${it}`));
      }
      assert.deepEqual([...new Set(problems)], []);
    } catch (error) {
      await keep(page, name).catch(() => {});
      if (!problems.length || String(error.message).includes(problems[0])) throw error;
      throw new Error(`${error.message}\nand: ${[...new Set(problems)].slice(0, 12).join('\n     ')}`, { cause: error });
    } finally {
      await context.close();
    }
  });
}

/** What a failed test's page looked like. */
async function keep(page, name) {
  const folder = path.join(made, 'failed');
  fs.mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, `${name.replace(/[^\w]+/g, '-').slice(0, 80)}.png`), timeout: 3000 });
}

/** Nothing for axe to find, in the page's present state, shadow roots included. */
export async function accessible(page, what = '') {
  // By the debugger, as the page's content policy would not take it.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axeSource());
  const found = await page.evaluate(async () => {
    // Colours in between are nobody's.
    const moving = document.getAnimations().filter((one) => Number.isFinite(one.effect?.getComputedTiming().endTime));
    await Promise.all(moving.map((one) => one.finished.catch(() => {})));
    return globalThis.axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
      resultTypes: ['violations'],
    });
  });
  const told = found.violations.map((rule) =>
    `${rule.id} (${rule.impact}): ${rule.help}\n${rule.nodes.slice(0, 4).map((node) => `      ${node.target.flat().join(' ')}: ${node.failureSummary?.split('\n')[1] ?? ''}`).join('\n')}`);
  assert.equal(told.length, 0, `${what}\n  ${told.join('\n  ')}`);
}

/** Nothing sticks out at the side. */
export async function fits(page, what = '') {
  const wide = await page.evaluate(async () => {
    // What follows the width of the window does so in the next frame.
    for (let at = 0; at < 2; at++) await new Promise(requestAnimationFrame);
    const root = document.scrollingElement;
    if (root.scrollWidth <= root.clientWidth) return null;
    const out = [...document.querySelectorAll('*')].filter((it) => it.getBoundingClientRect().right > root.clientWidth + 1);
    return `${root.scrollWidth} > ${root.clientWidth}: ${out.slice(0, 5).map((it) => `${it.tagName}.${it.className}`).join(', ')}`;
  });
  assert.equal(wide, null, what);
}

/** What a stranger's text must not have made, anywhere in the page, shadow roots included. */
export function harm(page) {
  return page.evaluate(() => {
    const found = [];
    const walk = (root) => {
      for (const it of root.querySelectorAll('*')) {
        const name = it.localName;
        for (const { name: attribute, value } of it.attributes) {
          if (/^on/i.test(attribute)) found.push(`${name} has ${attribute}`);
          // Of SVG, xlink:href too. A link to nowhere else than http(s), or within the page.
          if (/(^|:)(href|src|action|formaction|data|poster|ping|srcset)$/i.test(attribute)) {
            const url = URL.parse(value, location.href);
            if (!url) continue;
            if (!['http:', 'https:', 'data:', 'blob:'].includes(url.protocol)) found.push(`${name} ${attribute}=${value}`);
            if (url.protocol === 'data:' && !/^(a|img|link)$/.test(name)) found.push(`${name} ${attribute}=${value}`);
            if (!/^(a|area)$/.test(name) && url.origin !== location.origin && /^http/.test(url.protocol)) found.push(`${name} ${attribute}=${value}`);
          }
          if (attribute === 'style' && /url\(|expression|position:\s*fixed/i.test(value)) found.push(`${name} style=${value}`);
          if (attribute === 'srcdoc') found.push(`${name} srcdoc`);
        }
        if (/^(iframe|object|embed|base|frame|frameset|applet|marquee|math|video|audio|template)$/.test(name)) found.push(`<${name}>`);
        if (name === 'meta' && it.httpEquiv) found.push('<meta http-equiv>');
        if (name === 'script' && (!it.src || new URL(it.src).origin !== location.origin)) found.push(`<script> ${it.textContent.slice(0, 40)}`);
        if (it.shadowRoot) walk(it.shadowRoot);
      }
    };
    walk(document);
    return found;
  });
}

export { assert, until };
