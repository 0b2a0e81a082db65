// The README's pictures, from the running demo: tests/browser/run --pictures (which needs Debian's pngquant and fonts-inter).

import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { by, ended } from './lib/console.mjs';
import { chromium, chromiumProgram, buildFolder, web } from './lib/paths.mjs';
import { fromDisk } from './lib/files.mjs';
import { demo } from './lib/process.mjs';

const folder = path.join(web, 'pictures');
const LIMIT = 120 * 1024;
const DESK = { width: 1140, height: 680 };
const PHONE = { width: 390, height: 760 };

// Use the same fonts on every machine.
const fonts = path.join(buildFolder, 'fonts.conf');
const alias = (family) => `<match target="pattern"><test name="family"><string>${family}</string></test><edit name="family" mode="assign" binding="strong"><string>Inter</string><string>Noto Sans CJK SC</string></edit></match>`;
fs.writeFileSync(fonts, `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><include>/etc/fonts/fonts.conf</include>${['system-ui', 'sans-serif', '-apple-system'].map(alias).join('')}</fontconfig>`);

const behind = await demo({ speed: 30, history: 30, freshIds: false });
const front = process.env.BROWSER_FROM_DISK ? await fromDisk(behind.origin) : behind;
const browser = await chromium.launch({ executablePath: chromiumProgram, env: { ...process.env, FONTCONFIG_FILE: fonts }, args: ['--no-proxy-server', '--font-render-hinting=none'] });

/** Saves a screenshot with as many colours as the size limit allows. */
async function keep(page, name) {
  const png = await page.screenshot({ animations: 'disabled' });
  for (const colours of [256, 128, 64, 48, 32]) {
    const small = execFileSync('pngquant', ['--nofs', '--speed', '1', '--strip', String(colours), '-'], { input: png, maxBuffer: 1 << 24 });
    if (small.length > LIMIT) continue;
    fs.mkdirSync(folder, { recursive: true });
    fs.writeFileSync(path.join(folder, `${name}.png`), small);
    console.log(`${name}.png: ${Math.ceil(small.length / 1024)} KB, ${colours} colours`);
    return;
  }
  throw new Error(`${name} is too large`);
}

async function page(options = {}) {
  const context = await browser.newContext({ viewport: DESK, deviceScaleFactor: 1.5, locale: 'en-US', timezoneId: 'UTC', colorScheme: 'light', ...options });
  context.setDefaultTimeout(15_000);
  return context.newPage();
}

/** Asks a demo question and waits for the whole answer. */
async function askDemo(page, route) {
  await page.goto(`${front.origin}/`);
  await page.locator(`[data-test=demo-question][data-route=${route}]`).first().click();
  await ended(by(page, 'turn'));
  await by(page, 'turn').scrollIntoViewIfNeeded();
}

async function card(page, at) {
  const chip = page.locator('.cite-chip').nth(at);
  await chip.hover();
  await page.locator('cite-card:popover-open').waitFor();
  await page.waitForTimeout(400);
}

try {
  for (const colorScheme of ['light', 'dark']) {
    const chat = await page({ colorScheme });
    await askDemo(chat, 'doubao-en');
    await chat.evaluate(() => scrollTo(0, 0));
    await card(chat, 0);
    await keep(chat, `chat-${colorScheme}`);
    await chat.goto(`${front.origin}/#/domains`);
    await by(chat, 'chart').locator('svg').waitFor();
    await chat.waitForTimeout(500);
    await keep(chat, `domains-${colorScheme}`);
    await chat.context().close();
  }

  const wire = await page();
  await askDemo(wire, 'doubao-en');
  await by(wire, 'wire-ours').last().locator('summary').click();
  await wire.waitForTimeout(300);
  await by(wire, 'wire-ours').last().scrollIntoViewIfNeeded();
  await wire.mouse.move(5, 5);
  await keep(wire, 'wire');
  await by(wire, 'record-link').click();
  await by(wire, 'sources').locator('li').first().waitFor();
  await wire.waitForTimeout(300);
  await keep(wire, 'record');
  await wire.goto(`${front.origin}/#/messages`);
  await by(wire, 'message').first().waitFor();
  await wire.waitForTimeout(300);
  await keep(wire, 'messages');
  await wire.context().close();

  const phone = await page({ viewport: PHONE, deviceScaleFactor: 2, hasTouch: true, isMobile: true, locale: 'zh-CN' });
  await askDemo(phone, 'doubao');
  const chip = phone.locator('.cite-chip').nth(1);
  await chip.scrollIntoViewIfNeeded();
  await chip.evaluate((it) => scrollBy(0, it.getBoundingClientRect().top - 260));
  await chip.tap();
  await phone.locator('cite-card:popover-open').waitFor();
  await phone.waitForTimeout(400);
  await keep(phone, 'phone');
} finally {
  await browser.close();
  await Promise.all([behind.stop(), front === behind || front.stop()]);
}
