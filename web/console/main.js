// The console's router and header: page, theme, language, and key.
import { chatPage } from './chat.js';
import { domainsPage } from './domains.js';
import { fill, h, icon, localized } from './dom.js';
import { keyControl } from './key.js';
import { messagesPage } from './messages.js';
import { writePref, readPref } from './prefs.js';
import { recordPage } from './record.js';
import { detectLanguage, lang, setLanguage, t } from './i18n.js';
import { statusPage } from './status.js';

/**
 * @typedef {object} Page
 * @property {HTMLElement} element
 * @property {() => string} title
 * @property {(params: URLSearchParams) => void} [paramsChanged] called when only the parameters of the page change
 * @property {() => void} [leave]
 * @property {() => void} [enter] called when a page that was kept is shown again
 */

/** @typedef {'chat' | 'messages' | 'domains' | 'status'} Tab */

/** Parses the location's hash, such as `#/messages/ID?provider=x`. */
function here() {
  const [path = '', search = ''] = location.hash.replace(/^#\/?/, '').split(/\?(.*)/s);
  const [name = '', ...rest] = path.split('/');
  let id = rest.join('/');
  try {
    id = decodeURIComponent(id);
  } catch {
    // Invalid percent-encoding: use the id as it is. It will not be found.
  }
  return { name, id, params: new URLSearchParams(search) };
}

/** The chat page is hidden instead of removed, so that its answers keep streaming. @type {Page | null} */
let chat = null;
/** @type {{ at: string, tab: Tab, page: Page } | null} */
let shown = null;

/** @param {{ name: string, id: string, params: URLSearchParams }} to @returns {{ at: string, tab: Tab, make: () => Page }} */
function choose({ name, id, params }) {
  if (name === 'messages' && id) {
    const provider = params.get('provider') ?? '';
    return { at: `record ${provider} ${id}`, tab: 'messages', make: () => recordPage(id, provider) };
  }
  if (name === 'messages') return { at: 'messages', tab: 'messages', make: () => messagesPage(params) };
  if (name === 'domains') return { at: 'domains', tab: 'domains', make: () => domainsPage(params) };
  if (name === 'status') return { at: 'status', tab: 'status', make: () => statusPage() };
  return { at: 'chat', tab: 'chat', make: () => (chat ??= chatPage()) };
}

const main = h('main', { id: 'main', tabindex: '-1' });

function show() {
  const to = here();
  const { at, tab, make } = choose(to);
  if (shown?.at === at) {
    shown.page.paramsChanged?.(to.params);
    return;
  }
  const first = shown === null;
  shown?.page.leave?.();
  const page = make();
  for (const child of [...main.children]) {
    if (child === chat?.element) child.toggleAttribute('hidden', true);
    else child.remove();
  }
  if (page === chat && page.element.isConnected) page.element.hidden = false;
  else main.append(page.element);
  shown = { at, tab, page };
  page.enter?.();
  title();
  for (const link of document.querySelectorAll('nav a')) {
    if (link.getAttribute('data-tab') === tab) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.documentElement.dataset.tab = tab;
  if (!first) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

function title() {
  if (shown) document.title = `${shown.page.title()} · citetap`;
}

/** @param {Tab} tab @param {string} href */
function link(tab, href) {
  return h('a', { href, 'data-tab': tab, 'data-test': `nav-${tab}` }, icon(tab), h('span', {}, () => t(`nav.${tab}`)));
}

function themeSwitch() {
  const themes = /** @type {const} */ (['auto', 'light', 'dark']);
  const icons = /** @type {const} */ ({ auto: 'auto', light: 'sun', dark: 'moon' });
  const current = () => themes.find((theme) => theme === readPref('theme')) ?? 'auto';
  const button = h('button', { class: 'quiet square', type: 'button', 'data-test': 'theme', onclick: next });
  /** @type {'auto' | 'light' | 'dark'} */
  let theme = current();
  function say() {
    button.replaceChildren(icon(icons[theme]));
    button.setAttribute('aria-label', t('theme', { theme: t(`theme.${theme}`) }));
    button.title = t('theme', { theme: t(`theme.${theme}`) });
  }
  function next() {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length] ?? 'auto';
    writePref('theme', theme === 'auto' ? null : theme);
    if (theme === 'auto') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    say();
  }
  localized(button, say);
  return button;
}

function languageSwitch() {
  const button = h('button', { class: 'quiet', type: 'button', 'data-test': 'language', onclick: () => setLanguage(lang() === 'zh' ? 'en' : 'zh') });
  localized(button, () => {
    button.textContent = lang() === 'zh' ? 'EN' : '中文';
    button.lang = lang() === 'zh' ? 'en' : 'zh-CN';
    button.setAttribute('aria-label', lang() === 'zh' ? 'EN: English' : '中文: 简体中文');
  });
  return button;
}

function mark() {
  const brand = h('a', { class: 'brand', href: '#/', 'data-test': 'brand' });
  fill(brand, h('span', { class: 'bracket', 'aria-hidden': 'true' }, '['), 'citetap', h('span', { class: 'bracket', 'aria-hidden': 'true' }, ']'));
  return brand;
}

detectLanguage();
const skip = h('a', { class: 'skip', href: '#main', onclick: (/** @type {Event} */ event) => {
  event.preventDefault();
  main.focus();
} }, () => t('skip'));
document.body.append(
  skip,
  h('header', { class: 'top' },
    mark(),
    h('nav', { 'aria-label': () => t('nav') }, link('chat', '#/'), link('messages', '#/messages'), link('domains', '#/domains'), link('status', '#/status')),
    h('div', { class: 'controls' }, keyControl(), languageSwitch(), themeSwitch())),
  main);
addEventListener('hashchange', show);
document.addEventListener('citetap-language', title);
document.addEventListener('citetap-title', title);
show();
