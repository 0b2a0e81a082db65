// The component in a foreign page: chips, cards and lists, with pointer, keyboard and touch.

import { accessible, assert, fits, PHONE, servers, until, visit } from './lib/harness.mjs';
import { answer, bare, recordCardTimes, focused, shown } from './lib/bare.mjs';
import { demo, serve } from './lib/process.mjs';
import { ROUTES, SEED_TEXT, upstream } from './lib/upstream.mjs';

const on = await servers({
  up: () => upstream(),
  scripted: ({ up }) => serve(ROUTES(up.origin)),
  demo: () => demo({ history: 0 }),
});

const NEWS = 'https://news.example.com/hk/wang-fuk-court-fire';
const chips = (page) => page.locator('.cite-chip');
const card = (page) => page.locator('cite-card:popover-open');
const away = (page) => page.mouse.move(5, 400);
const prose = async (it) => (await it.locator('[part~=answer]').innerText()).replaceAll('\u2060', '');

// ---- what is shown ----

visit("the seed's own example is rendered, hovered and clicked", { outside: /^https:\/\/news\.example\.com\// }, async (page, { context }) => {
  await bare(page, on.scripted.origin, { lang: 'zh-CN' });
  const it = await answer(page, 'seed');
  assert.equal(await it.evaluate((it) => it.text), SEED_TEXT);
  assert.equal(await prose(it), '香港宏福苑发生严重火灾2');
  const chip = chips(page);
  assert.equal(await chip.count(), 1);
  assert.equal(await chip.getAttribute('href'), NEWS);
  assert.match(await chip.getAttribute('aria-label'), /^来源 2[:：] ?香港宏福苑火灾最新情况.*示例新闻$/);
  assert.equal(await chip.getAttribute('rel'), 'noopener noreferrer nofollow');
  assert.equal(await chip.getAttribute('referrerpolicy'), 'no-referrer');

  await chip.hover();
  await card(page).waitFor();
  const text = await shown(card(page));
  for (const part of ['香港宏福苑火灾最新情况', '示例新闻', '2025-11-27', '消防处将火警升为五级']) assert.ok(text.includes(part), `${part} in ${text}`);
  assert.equal(await card(page).getAttribute('role'), 'dialog');
  assert.equal(await chip.getAttribute('aria-expanded'), 'true');
  assert.equal(await it.locator('li.marked').count(), 1, 'its row in the list is marked');
  await accessible(page, 'with an open card');

  const opened = context.waitForEvent('page');
  await chip.click();
  assert.equal((await opened).url(), NEWS);
  assert.equal(await (await opened).evaluate(() => document.referrer), '');
  assert.equal(await (await opened).evaluate(() => window.opener), null);
});

visit('adjacent markers become one chip, whose card has pages', async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'merged');
  assert.deepEqual(await chips(page).allInnerTexts(), ['1 +2', '2 +1', '1 +1', '4']);
  assert.equal(await prose(it), 'Three in a row 1 +2, two 2 +1, a list 1 +1, and one 4.');
  await chips(page).first().hover();
  await card(page).waitFor();
  assert.match(await shown(card(page)), /Page 1 about[^]*1\/3/);
  const next = card(page).getByRole('button', { name: 'Next' });
  await next.click();
  assert.match(await shown(card(page)), /Page 2 about[^]*2\/3/);
  await next.click();
  await next.click();
  assert.match(await shown(card(page)), /Page 1 about[^]*1\/3/);
  await card(page).getByRole('button', { name: 'Previous' }).click();
  assert.match(await shown(card(page)), /Page 3 about[^]*3\/3/);
  await accessible(page, 'a card of several');
});

visit('a number that no source has stays text, and so does code', async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'dangling');
  const text = await prose(it);
  assert.match(text, /^Known 1, unknown \[7\], both 1 ?\[9\], arr\[1\] and \[1\] are code\. The year is \[2024\]\.$/);
  assert.deepEqual(await chips(page).allInnerTexts(), ['1', '1']);
});

visit('a source without a URL has a card and no link', async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'nourl');
  assert.deepEqual(await chips(page).evaluateAll((all) => all.map((one) => one.getAttribute('href'))), ['https://site1.example.com/page-1', null, null]);
  const second = chips(page).nth(1);
  assert.equal(await second.getAttribute('role'), 'button');
  await second.click();
  await card(page).waitFor();
  assert.match(await shown(card(page)), /Page 2 about/);
  assert.equal(await card(page).getByRole('link').count(), 0);
  await page.keyboard.press('Escape');
  await second.focus();
  await page.keyboard.press('Escape');
  await page.keyboard.press('Enter');
  await card(page).waitFor();
  assert.equal(await it.locator('cite-list li').nth(1).getByRole('link').count(), 0);
  await accessible(page);
});

visit('chips become links when the record comes, without layout shift', async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed-late', { wait: false });
  await until(() => on.up.waiting() > 0, 'the gate');
  const it = page.locator('cite-answer');
  await until(async () => /一个字也不动/.test(await prose(it)), 'the text');
  await until(async () => (await chips(page).count()) === 3, 'the chips');
  assert.equal(await page.locator('.cite-chip[href]').count(), 0, 'no source is known yet');
  assert.equal(await it.locator('[aria-busy=true]').count(), 1);
  const boxes = () =>
    it.evaluate((it) => {
      const out = [];
      const walker = document.createTreeWalker(it.shadowRoot.querySelector('[part~=answer]'), NodeFilter.SHOW_TEXT);
      const range = document.createRange();
      while (walker.nextNode()) {
        range.selectNodeContents(walker.currentNode);
        for (const { x, y, width, height } of range.getClientRects()) if (width) out.push([walker.currentNode.nodeValue, x, y, width, height].join(' '));
      }
      return out;
    });
  const before = await boxes();
  assert.ok(before.length >= 6);
  on.up.release();
  await page.evaluate(() => globalThis.ended);
  assert.equal(await page.locator('.cite-chip[href]').count(), 3, 'now all are');
  assert.deepEqual(await boxes(), before);
  assert.equal(await it.locator('[aria-busy=true]').count(), 0);
});

visit('an answer is announced once, at its end', async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'gated', { wait: false });
  await until(() => on.up.waiting() > 0, 'the gate');
  await until(async () => /First part/.test(await shown(page.locator('cite-answer'))), 'the first part');
  const status = page.locator('cite-answer [role=status]');
  assert.equal(await status.textContent(), '');
  assert.notEqual(await status.evaluate((it) => getComputedStyle(it).display), 'none', 'a live region has to be there before its text');
  on.up.release();
  await until(() => on.up.waiting() > 0, 'the second gate');
  on.up.release();
  await page.evaluate(() => globalThis.ended);
  assert.match(await status.textContent(), /complete.*2/i);
});

visit('an answer that breaks off shows an error, its text and its sources', { allow: [/ERR_INCOMPLETE_CHUNKED/] }, async (page) => {
  await bare(page, on.scripted.origin);
  for (const [route, text, reason] of [['cut', 'This answer is cut 1 in the middle of', /broke off/], ['error', 'This one fails 1 after a while.', /rate limited/], ['error-openai', 'This one fails 1 too.', /Provider disconnected/]]) {
    const it = await answer(page, route);
    assert.equal(await prose(it), text);
    assert.match(await it.getByRole('alert').innerText(), reason);
    assert.equal((await page.evaluate(() => globalThis.ended)).complete, false);
    assert.equal(await it.locator('cite-list li').count(), 1);
    await accessible(page, route);
    await page.evaluate(() => globalThis.answer.remove());
  }
});

visit('an answer without sources has no list', async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'none');
  assert.equal(await prose(it), 'No sources were needed for this.');
  assert.equal(await it.locator('cite-list li').count(), 0);
  await accessible(page);
});

// ---- pointer ----

visit('a card opens after a delay, can be entered, and closes after a delay', async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed');
  await recordCardTimes(page);
  await chips(page).hover();
  await card(page).waitFor();
  const opening = await page.evaluate(() => clock.opened - clock.over);
  assert.ok(opening >= 140 && opening < 450, `opened after ${opening} ms`);

  // Move across the gap into the card.
  const from = await chips(page).boundingBox();
  const to = await card(page).boundingBox();
  await page.mouse.move(to.x + 40, to.y + 30, { steps: 8 });
  await page.waitForTimeout(700);
  assert.equal(await card(page).count(), 1, 'it stays while the pointer is in it');
  assert.ok(from.y + from.height <= to.y + 1 || to.y + to.height <= from.y + 1, 'it does not cover its chip');
  await page.mouse.move(to.x + 60, to.y + 50);
  await away(page);
  await until(() => page.evaluate(() => clock.closed), 'its closing');
  const closing = await page.evaluate(() => clock.closed - clock.out);
  assert.ok(closing >= 250 && closing < 700, `closed after ${closing} ms`);

  // A pointer that only passes over the chip opens no card.
  await page.evaluate(() => (clock.opened = 0));
  const box = await chips(page).boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  await page.waitForTimeout(60);
  await away(page);
  await page.waitForTimeout(500);
  assert.equal(await page.evaluate(() => clock.opened), 0);
});

visit('a card stays open while hovered, and Escape closes it', async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed');
  await chips(page).hover();
  await card(page).waitFor();
  await page.waitForTimeout(1500);
  assert.equal(await card(page).count(), 1, 'no timer closes it');
  await page.keyboard.press('Escape');
  await until(async () => (await card(page).count()) === 0, 'its closing');
  await page.waitForTimeout(400);
  assert.equal(await card(page).count(), 0, 'and it stays closed');
});

visit('a card stays within the viewport', async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'merged');
  for (const [style, width] of [['margin-left: calc(100vw - 200px)', 1280], ['margin-top: 85vh', 1280], ['', 400]]) {
    await page.setViewportSize({ width, height: 600 });
    await it.evaluate((it, style) => (it.style.cssText = style), style);
    await it.evaluate((it) => scrollTo(0, it.getBoundingClientRect().top - 500));
    await chips(page).first().hover();
    await card(page).waitFor();
    const box = await card(page).boundingBox();
    assert.ok(box.x >= 0 && box.x + box.width <= width && box.y >= 0 && box.y + box.height <= 600, `${style} ${width}: ${JSON.stringify(box)}`);
    await page.keyboard.press('Escape');
    await away(page);
  }
});

// ---- keyboard ----

visit('by keyboard: focus opens, Enter follows, the arrow enters, Escape returns', { outside: /^https:\/\/news\.example\.com\// }, async (page, { context }) => {
  await bare(page, on.scripted.origin, { body: '<button>before</button>' });
  await answer(page, 'seed', { attributes: { nolist: '' } });
  await page.evaluate(() => document.querySelector('main').insertAdjacentHTML('beforeend', '<button>after</button>'));
  await page.getByRole('button', { name: 'before' }).focus();
  await page.keyboard.press('Tab');
  await card(page).waitFor();
  assert.equal(await focused(page), 'a.cite-chip 2', 'the focus is on the chip');

  await page.keyboard.press('Escape');
  assert.equal(await card(page).count(), 0);
  assert.equal(await focused(page), 'a.cite-chip 2', 'the focus stays');

  const opened = context.waitForEvent('page');
  await page.keyboard.press('Enter');
  assert.equal((await opened).url(), NEWS);
  await (await opened).close();

  await page.keyboard.press('ArrowDown');
  await card(page).waitFor();
  assert.match(await focused(page), /^a.*香港宏福苑火灾最新情况/, 'the arrow leads to the title');
  await accessible(page, 'within a card');
  await page.keyboard.press('Escape');
  assert.equal(await card(page).count(), 0);
  assert.equal(await focused(page), 'a.cite-chip 2', 'the focus returns');

  // Focus opens the card; Tab walks through it and continues after the chip.
  await page.keyboard.press('Shift+Tab');
  assert.equal(await focused(page), 'button before');
  await page.keyboard.press('Tab');
  await card(page).waitFor();
  await page.keyboard.press('Tab');
  assert.match(await focused(page), /^a.*香港宏福苑火灾最新情况/);
  await page.keyboard.press('Tab');
  assert.match(await focused(page), /Open$/);
  await page.keyboard.press('Tab');
  assert.match(await focused(page), /Copy$/);
  await page.keyboard.press('Tab');
  assert.equal(await focused(page), 'button after');
  await until(async () => (await card(page).count()) === 0, 'its closing');
  await page.keyboard.press('Shift+Tab');
  await card(page).waitFor();
  await page.keyboard.press('Tab');
  await page.keyboard.press('Shift+Tab');
  assert.equal(await focused(page), 'a.cite-chip 2', 'backwards out of the card is the chip');
  // The card closes when the focus leaves.
  await page.keyboard.press('Shift+Tab');
  assert.equal(await focused(page), 'button before');
  await until(async () => (await card(page).count()) === 0, 'its closing');
});

// ---- touch ----

visit('touch: the first tap opens a sheet, the second follows the link', { outside: /^https:\/\/news\.example\.com\//, context: { hasTouch: true, isMobile: true, viewport: PHONE } }, async (page, { context }) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed');
  await chips(page).tap();
  await card(page).waitFor();
  await page.waitForTimeout(300);
  const box = await card(page).boundingBox();
  assert.ok(Math.abs(box.y + box.height - PHONE.height) <= 1 && box.width === PHONE.width, `a sheet at the bottom: ${JSON.stringify(box)}`);
  assert.equal(context.pages().length, 1, 'nothing was followed yet');
  for (const target of await card(page).locator('button, a[part~=button]').all()) {
    const { width, height } = await target.boundingBox();
    assert.ok(width >= 24 && height >= 24, `${await target.textContent()}: ${width} x ${height}`);
  }
  await accessible(page, 'with a sheet');
  await fits(page, 'with a sheet');

  // A tap outside closes the sheet, and so does the button.
  await page.touchscreen.tap(180, 30);
  await until(async () => (await card(page).count()) === 0, 'its closing');
  await chips(page).tap();
  await card(page).waitFor();
  await card(page).getByRole('button', { name: 'Close' }).tap();
  await until(async () => (await card(page).count()) === 0, 'its closing');

  await chips(page).tap();
  await card(page).waitFor();
  const opened = context.waitForEvent('page');
  await chips(page).tap();
  assert.equal((await opened).url(), NEWS);
});

visit('tap targets are at least 24 pixels wide and high', async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'merged');
  const small = await chips(page).evaluateAll((all) =>
    all.map((chip) => {
      const { left, right, top, bottom } = chip.getBoundingClientRect();
      const [x, y] = [(left + right) / 2, (top + bottom) / 2];
      const root = chip.getRootNode();
      const hits = (dx, dy) => root.elementFromPoint(x + dx, y + dy)?.closest('.cite-chip') === chip;
      return [hits(-11, 0), hits(11, 0), hits(0, -11), hits(0, 11)].every(Boolean) ? null : chip.textContent;
    }).filter(Boolean));
  assert.deepEqual(small, []);
});

// ---- copying ----

const CLIPBOARD = { context: { permissions: ['clipboard-read', 'clipboard-write'] } };
const clipboard = (page) => page.evaluate(() => navigator.clipboard.readText());

visit('one source is copied from its card', CLIPBOARD, async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed');
  await chips(page).hover();
  await card(page).waitFor();
  await card(page).getByRole('button', { name: 'Copy' }).click();
  await card(page).getByText('Copied').waitFor();
  const text = await clipboard(page);
  for (const part of ['香港宏福苑火灾最新情况', '示例新闻', '2025-11-27', NEWS]) assert.ok(text.includes(part), text);
});

visit('all sources are copied: Markdown, plain, BibTeX, JSON', CLIPBOARD, async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'seed');
  const menu = it.locator('summary');
  const copy = async (name) => {
    if (!(await it.locator('details').evaluate((details) => details.open))) await menu.click();
    await page.evaluate(() => navigator.clipboard.writeText(''));
    await it.locator('details button').nth(['Markdown', 'Plain text', 'BibTeX', 'JSON'].indexOf(name)).click();
    await until(async () => /Copied/.test(await it.locator('details').innerText()), `${name} to be confirmed`);
    const text = await until(() => clipboard(page), `${name} to be copied`);
    await menu.click().catch(() => {});
    return text;
  };
  assert.equal(await menu.innerText(), 'Copy all');
  await menu.click();
  assert.deepEqual(await it.locator('details button').allInnerTexts(), ['Markdown', 'Plain text', 'BibTeX', 'JSON']);
  await accessible(page, 'with an open menu');

  const markdown = await copy('Markdown');
  const lines = markdown.trim().split('\n');
  assert.equal(lines.length, 3);
  assert.match(lines[1], /^2\. \[香港宏福苑火灾最新情况\]\(<?https:\/\/news\.example\.com\/hk\/wang-fuk-court-fire>?\)/);
  const plain = await copy('Plain text');
  assert.match(plain, /^\[1\] .*wang-fuk-court\n\[2\] 香港宏福苑火灾最新情况.*https:\/\/news\.example\.com\/hk\/wang-fuk-court-fire\n\[3\] /);
  const bibtex = await copy('BibTeX');
  assert.equal(bibtex.match(/^@\w+\{/gm).length, 3, bibtex);
  assert.match(bibtex, /url\s*=\s*\{https:\/\/news\.example\.com\/hk\/wang-fuk-court-fire\}/);
  const json = JSON.parse(await copy('JSON'));
  assert.deepEqual(json.citations.map(({ number, cited }) => [number, cited]), [[1, false], [2, true], [3, false]]);
});

visit('copied text has chips as numbers and sources as notes', CLIPBOARD, async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'merged');
  await it.evaluate((it) => {
    const part = it.shadowRoot.querySelector('[part~=answer]');
    getSelection().selectAllChildren(part);
  });
  await page.keyboard.press('Control+C');
  const text = await until(() => clipboard(page), 'the clipboard');
  const [body, ...notes] = text.split(/\n+/);
  assert.equal(body, 'Three in a row [1][2][3], two [2][4], a list [1][2], and one [4].');
  assert.equal(notes.length, 4);
  notes.forEach((note, at) => assert.match(note, new RegExp(`^\\[${at + 1}\\]:? .*Page ${at + 1} about.*https://site${at + 1}\\.example\\.com/page-${at + 1}`)));

  // A partial selection has only its own sources.
  await it.evaluate((it) => {
    const last = [...it.shadowRoot.querySelectorAll('.cite-chip')].at(-1);
    const range = document.createRange();
    range.setStart(last.previousSibling.previousSibling ?? last.previousSibling, 2);
    range.setEndAfter(last);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
  });
  await page.keyboard.press('Control+C');
  await until(async () => (await clipboard(page)) !== text, 'the clipboard');
  assert.match(await clipboard(page), /and one \[4\]\s+\[4\]:? .*Page 4/);
  assert.doesNotMatch(await clipboard(page), /Page 1/);
});

// ---- appearance ----

const colours = (page) =>
  page.evaluate(() => {
    const it = document.querySelector('cite-answer').shadowRoot;
    const of = (selector) => getComputedStyle(it.querySelector(selector));
    return [of('.cite-chip').color, of('.cite-chip').backgroundColor, getComputedStyle(document.querySelector('cite-answer')).color, getComputedStyle(it.querySelector('cite-card')).backgroundColor];
  });

visit('colours follow the color scheme of the page', async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'merged');
  const open = async () => {
    await away(page);
    await chips(page).nth(1).hover();
    await card(page).waitFor();
  };
  await open();
  const light = await colours(page);
  await accessible(page, 'light');
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await colours(page);
  light.forEach((colour, at) => assert.notEqual(colour, dark[at], `colour ${at}`));
  await accessible(page, 'dark');
  // The page overrides the system.
  await page.evaluate(() => (document.documentElement.style.colorScheme = 'light'));
  assert.deepEqual(await colours(page), light);
});

visit('forced colours leave chips and cards with an edge', { context: { forcedColors: 'active' } }, async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed');
  const edge = await chips(page).evaluate((chip) => {
    const style = getComputedStyle(chip);
    return style.borderStyle !== 'none' || style.outlineStyle !== 'none';
  });
  assert.ok(edge);
  await chips(page).hover();
  await card(page).waitFor();
  assert.notEqual(await card(page).evaluate((it) => getComputedStyle(it).borderTopStyle), 'none');
  await accessible(page);
});

visit('no animation with prefers-reduced-motion', { context: { reducedMotion: 'reduce' } }, async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed');
  await chips(page).hover();
  await card(page).waitFor();
  const moving = () => page.evaluate(() => document.getAnimations().filter((one) => one.effect?.target).length + document.querySelector('cite-answer').shadowRoot.getAnimations().length);
  assert.equal(await moving(), 0);
  const styles = await card(page).evaluate((it) => [getComputedStyle(it).animationName, getComputedStyle(it).transitionDuration]);
  assert.deepEqual(styles, ['none', '0s']);
});

visit('pages can set custom properties and style parts', async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed');
  await page.evaluate(() => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('cite-answer { --cite-accent: rgb(1, 2, 3); --cite-chip-bg: rgb(200, 210, 220); --cite-radius: 3px } cite-answer::part(chip) { border-radius: 5px } cite-answer::part(answer) { font-size: 21px } cite-answer::part(source) { padding-left: 33px }');
    document.adoptedStyleSheets.push(sheet);
  });
  const got = await page.evaluate(() => {
    const root = document.querySelector('cite-answer').shadowRoot;
    const chip = getComputedStyle(root.querySelector('.cite-chip'));
    return [chip.color, chip.backgroundColor, chip.borderRadius, getComputedStyle(root.querySelector('[part~=answer]')).fontSize, getComputedStyle(root.querySelector('cite-list').shadowRoot.querySelector('li')).paddingLeft];
  });
  assert.deepEqual(got, ['rgb(1, 2, 3)', 'rgb(200, 210, 220)', '5px', '21px', '33px']);
});

visit('chips can show the publisher', async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed', { attributes: { chips: 'publisher' } });
  assert.deepEqual(await chips(page).allInnerTexts(), ['示例新闻']);
});

visit('texts follow the language of the page', async (page) => {
  await bare(page, on.scripted.origin, { lang: 'zh-CN' });
  const it = await answer(page, 'seed');
  const list = await shown(it.locator('cite-list'));
  assert.match(list, /复制全部/);
  assert.doesNotMatch(list, /Copy|Sources|Scores/);
  await page.evaluate(() => globalThis.answer.remove());
  await answer(page, 'seed', { attributes: { lang: 'en' } });
  assert.match(await shown(page.locator('cite-list')), /Copy all/);
});

visit('a phone viewport does not scroll horizontally', { context: { viewport: PHONE } }, async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'fast');
  await fits(page);
  await accessible(page);
});

// ---- lists ----

visit('a list of a stored record: count, queries, cited and consulted, scores on demand', { allow: [/404/] }, async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'seed', { attributes: { nolist: '' } });
  assert.equal(await page.locator('cite-answer cite-list li').count(), 0, 'nolist');
  const id = await page.evaluate(() => globalThis.answer.record.messageId);
  await page.evaluate((id) => {
    const list = document.createElement('cite-list');
    list.setAttribute('message', id);
    document.querySelector('main').append(list);
  }, id);
  const list = page.locator('main > cite-list');
  await list.locator('li').first().waitFor();
  const text = await shown(list);
  assert.match(text, /Sources\s*3/);
  assert.match(text, /香港宏福苑火灾/);
  assert.match(text, /Consulted[^]*\(2\)/);
  assert.deepEqual(await list.locator('li .title').allInnerTexts(), ['香港宏福苑火灾最新情况', '大埔宏福苑背景资料', '消防处通报'], 'what is cited comes first');
  assert.doesNotMatch(text, /relevance/);
  const scores = list.getByRole('button', { name: 'Scores' });
  assert.equal(await scores.getAttribute('aria-pressed'), 'false');
  await scores.click();
  assert.equal((await shown(list)).match(/relevance [01]\.\d\d/g).length, 3);
  assert.equal(await list.getByRole('button', { name: 'Scores' }).getAttribute('aria-pressed'), 'true');
  await accessible(page);
  // The list waits for a message that may be in flight; shorten the wait.
  await page.route('**/citations/unknown-message*', (route) => route.continue({ url: route.request().url().replace(/wait=\d+/, 'wait=0') }));
  await list.evaluate((list) => list.setAttribute('message', 'unknown-message'));
  await until(async () => /could not/i.test(await shown(list)), 'what it says of an unknown one');
});

// ---- dialects and input ----

const PROFILES = ['native', 'openai', 'ai-sdk', 'open-webui'];
for (const [route, model, expected] of [['doubao', 'doubao-demo', 10], ['tencent', 'lexiang-demo', 5], ['doubao-en', 'doubao-demo-en', 6], ['openai', 'openai-demo', 4]]) {
  visit(`the demo's ${route} route looks the same in every profile`, async (page) => {
    await bare(page, on.demo.origin);
    const seen = {};
    for (const profile of PROFILES) {
      const it = await answer(page, route, { profile, model });
      assert.equal((await page.evaluate(() => globalThis.ended)).complete, true, profile);
      seen[profile] = [await it.evaluate((it) => it.text), await prose(it), await it.locator('cite-list li').count()].join('\n');
      assert.equal(await it.locator('cite-list li').count(), expected, profile);
      assert.ok((await it.locator('.cite-chip[href]').count()) > 2, profile);
      assert.equal(await it.locator('.cite-chip:not([href])').count(), 0, `${profile}: all chips are links`);
      assert.ok(await page.evaluate(() => globalThis.events.every((event) => event.type !== 'citations' || event.verified)), 'verified');
      await page.evaluate(() => globalThis.answer.remove());
    }
    for (const profile of PROFILES) assert.equal(seen[profile], seen.native, profile);
  });
}

visit('append, record, finish and text without a stream', async (page) => {
  await bare(page, on.scripted.origin);
  const record = { citations: [{ number: 1, url: 'https://a.example/', title: 'A page', cited: true }, { number: 3, aliases: [4], url: 'https://c.example/', title: 'Another', cited: true }], complete: true };
  const it = page.locator('cite-answer');
  await page.evaluate(async (record) => {
    const it = document.createElement('cite-answer');
    document.querySelector('main').append(it);
    for (const part of ['Some **bold** text ', '[', '1', '] and [4', '], then [2].']) it.append(part);
    await new Promise((resolve) => setTimeout(resolve, 300));
    it.record = record;
    await it.finish();
  }, record);
  assert.equal(await prose(it), 'Some bold text 1 and 4, then [2].');
  assert.equal(await it.locator('[part~=answer] strong').innerText(), 'bold');
  assert.deepEqual(await chips(page).evaluateAll((all) => all.map((one) => one.href)), ['https://a.example/', 'https://c.example/']);
  await it.evaluate((it) => (it.text = 'Another text [3].'));
  await until(async () => /Another text/.test(await prose(it)), 'the other text');
  await it.evaluate((it, record) => (it.record = record), record);
  await until(async () => (await chips(page).evaluateAll((all) => all.map((one) => one.href).join())) === 'https://c.example/', 'its chip');
  assert.equal(await prose(it), 'Another text 3.');
});

visit('stop ends the answer and keeps its text', async (page) => {
  await bare(page, on.scripted.origin);
  await answer(page, 'slow', { wait: false });
  const it = page.locator('cite-answer');
  await until(async () => /takes its/.test(await prose(it)), 'some text');
  await page.evaluate(() => globalThis.answer.stop());
  assert.equal((await page.evaluate(() => globalThis.ended)).complete, false);
  const text = await it.evaluate((it) => it.text);
  await page.waitForTimeout(400);
  assert.equal(await it.evaluate((it) => it.text), text);
  assert.ok(text.length < 1000);
});

visit('without a renderer it shows plain text with chips', async (page) => {
  await bare(page, on.scripted.origin);
  const it = await answer(page, 'merged', { attributes: { plain: '' } });
  assert.deepEqual(await chips(page).allInnerTexts(), ['1 +2', '2 +1', '1 +1', '4']);
  assert.equal(await prose(it), 'Three in a row 1 +2, two 2 +1, a list 1 +1, and one 4.');
});

visit('upgrade turns rendered markers into chips', { outside: /^https:\/\/a\.example\// }, async (page, { context }) => {
  const sup = (id, data) => `<sup data-citation="${JSON.stringify({ id, ...data }).replaceAll('"', '&quot;')}">${id}</sup>`;
  const link = (id, url) => `<a href="${url}">${sup(id, { url, title: `Title ${id}`, content: `Content ${id}` })}</a>`;
  await bare(page, on.scripted.origin, {
    body: `<p id="in">One${link(1, 'https://a.example/1')}, two${link(2, 'https://a.example/2')}${link(3, 'https://a.example/3')}, none${sup(4, { title: 'No link' })}, odd<sup data-citation="not json">5</sup>,
      bad${sup(6, { url: 'javascript:pwned(1)', title: 'Bad' })} and<sup>7</sup>.</p><p id="out">Out${link(8, 'https://a.example/8')}</p>`,
  });
  await page.evaluate(async () => (await import('/component.js')).upgrade(document.querySelector('#in')));
  assert.equal(await page.locator('#out sup').count(), 1, 'only below its root');
  assert.equal((await page.locator('#in').innerText()).replaceAll('\u2060', '').replaceAll(/\s+/g, ' '), 'One1, two2 +1, none4, odd5, bad6 and7.');
  assert.deepEqual(await page.locator('#in .cite-chip').evaluateAll((all) => all.map((one) => one.getAttribute('href'))), ['https://a.example/1', 'https://a.example/2', null, null, null]);
  await page.evaluate(async () => (await import('/component.js')).upgrade());
  assert.equal(await page.locator('sup[data-citation]').count(), 0);
  await page.locator('#in .cite-chip').nth(1).hover();
  await card(page).waitFor();
  assert.match(await shown(card(page)), /Title 2[^]*Content 2[^]*1\/2/);
  await accessible(page);
  const opened = context.waitForEvent('page');
  await page.locator('#in .cite-chip').nth(1).click();
  assert.equal((await opened).url(), 'https://a.example/2');
});
