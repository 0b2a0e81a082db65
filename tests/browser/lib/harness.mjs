// Tests with a page. Console errors, policy violations, requests to other origins and injected scripts fail every test.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, test } from 'node:test';
import { axeSource, chromium, chromiumProgram, buildFolder } from './paths.mjs';
import { fromDisk } from './files.mjs';
import { PATIENCE, until } from './until.mjs';

export const PHONE = { width: 360, height: 740 };
export const DESKTOP = { width: 1280, height: 860 };

// node:test does not order hooks outside of a suite, so set up with top-level await.
const browser = await chromium.launch({
  executablePath: chromiumProgram,
  // Block all traffic except to loopback.
  args: ['--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1', '--no-proxy-server', '--disable-background-networking', '--font-render-hinting=none'],
});
after(() => browser.close());

/** Starts the servers of a test file and stops them after the tests; returns them by name. */
export async function servers(make) {
  const running = {};
  after(() => Promise.all(Object.values(running).map((server) => server.stop())));
  for (const [name, starting] of Object.entries(make)) {
    let server = await starting(running);
    if (process.env.BROWSER_FROM_DISK && server.output) {
      const behind = server;
      const front = await fromDisk(behind.origin);
      server = { ...front, output: behind.output, stop: () => Promise.all([front.stop(), behind.stop()]) };
    }
    running[name] = server;
  }
  return running;
}

/** Runs in every page: records policy violations, and calls of `pwned` by injected scripts. */
function recordViolations() {
  globalThis.__broken = [];
  globalThis.__pwned = [];
  globalThis.pwned = (n) => globalThis.__pwned.push(n);
  document.addEventListener('securitypolicyviolation', (e) => globalThis.__broken.push(`${e.violatedDirective}: ${e.blockedURI} ${e.sample}`));
}

/**
 * `visit(name, options, body)`: a test whose body gets a watched page.
 * @param {{allow?: RegExp[], origins?: () => string[], outside?: RegExp, context?: object, timeout?: number, hostile?: boolean}} options
 *   allow: expected console messages; origins: allowed ones besides the page's own; outside: external pages that may be opened
 *   (answered by a stub); context: options for Playwright
 */
export function visit(name, options, body) {
  if (typeof options === 'function') [options, body] = [{}, options];
  return test(name, { timeout: options.timeout ?? 60_000 }, async (t) => {
    const problems = [];
    const allowed = options.allow ?? [];
    const context = await browser.newContext({ viewport: DESKTOP, colorScheme: 'light', locale: 'en-US', timezoneId: 'UTC', ...options.context });
    context.setDefaultTimeout(PATIENCE);
    await context.addInitScript(recordViolations);
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
      problems.push(`requested ${request.method()} ${request.url()}`);
    });

    const page = await context.newPage();
    /** Opens a page and allows requests to its origin. */
    page.visit = async (url) => {
      if (url.startsWith('http')) home.add(new URL(url).origin);
      await page.goto(url);
    };
    try {
      await body(page, { context, t, problems });
      for (const each of context.pages()) {
        const { broken, pwned } = await each.evaluate(() => ({ broken: globalThis.__broken ?? [], pwned: globalThis.__pwned ?? [] }));
        problems.push(...broken.map((it) => `content policy: ${it}`), ...pwned.map((it) => `injected script ran: ${it}`));
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

/** Saves a screenshot of a failed test. */
async function keep(page, name) {
  const folder = path.join(buildFolder, 'failed');
  fs.mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: path.join(folder, `${name.replace(/[^\w]+/g, '-').slice(0, 80)}.png`), timeout: 3000 });
}

/** Asserts that axe finds no violation in the current page, including shadow roots. */
export async function accessible(page, what = '') {
  // Injected through the debugger, because the page's content policy forbids the script.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(axeSource());
  const found = await page.evaluate(async () => {
    // Wait for animations, because intermediate colours may lack contrast.
    const moving = document.getAnimations().filter((one) => Number.isFinite(one.effect?.getComputedTiming().endTime));
    await Promise.all(moving.map((one) => one.finished.catch(() => {})));
    return globalThis.axe.run(document, {
      runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
      resultTypes: ['violations'],
    });
  });
  const violations = found.violations.map((rule) =>
    `${rule.id} (${rule.impact}): ${rule.help}\n${rule.nodes.slice(0, 4).map((node) => `      ${node.target.flat().join(' ')}: ${node.failureSummary?.split('\n')[1] ?? ''}`).join('\n')}`);
  assert.equal(violations.length, 0, `${what}\n  ${violations.join('\n  ')}`);
}

/** Asserts that the page does not scroll horizontally. */
export async function fits(page, what = '') {
  const wide = await page.evaluate(async () => {
    // Layout follows a resize in the next frame.
    for (let at = 0; at < 2; at++) await new Promise(requestAnimationFrame);
    const root = document.scrollingElement;
    if (root.scrollWidth <= root.clientWidth) return null;
    const out = [...document.querySelectorAll('*')].filter((it) => it.getBoundingClientRect().right > root.clientWidth + 1);
    return `${root.scrollWidth} > ${root.clientWidth}: ${out.slice(0, 5).map((it) => `${it.tagName}.${it.className}`).join(', ')}`;
  });
  assert.equal(wide, null, what);
}

/** Finds elements and attributes that untrusted text must not have created, including shadow roots. */
export function harm(page) {
  return page.evaluate(() => {
    const found = [];
    const walk = (root) => {
      for (const it of root.querySelectorAll('*')) {
        const name = it.localName;
        for (const { name: attribute, value } of it.attributes) {
          if (/^on/i.test(attribute)) found.push(`${name} has ${attribute}`);
          // Includes SVG's xlink:href. URLs must be http(s), or lie within the page.
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
