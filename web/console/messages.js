// The messages page: stored records, newest first, with filters.
import { ApiError, json, resolveUrl, query } from './api.js';
import { fill, h, icon, localized } from './dom.js';
import { key } from './prefs.js';
import { ago, dateTime, t } from './i18n.js';
import { recordLink } from './turn.js';

const PAGE = 25;
const FILTERS = /** @type {const} */ (['q', 'domain', 'provider', 'conversation', 'since', 'until']);
/** @typedef {Record<typeof FILTERS[number], string>} Filters */

/** Midnight of a day in the user's time zone, in milliseconds. @param {string} day @param {number} plus days */
function midnight(day, plus) {
  const [year, month, date] = day.split('-').map(Number);
  if (!year || !month || !date) return '';
  return new Date(year, month - 1, date + plus).getTime();
}

/** @param {any} record */
export function badges(record) {
  /** @param {boolean} good @param {import('./i18n.js').TextKey} word @param {import('./i18n.js').TextKey | null} [why] */
  const badge = (good, word, why = null) => h('span', { class: `badge ${good ? 'good' : 'warn'}`, title: why && (() => t(why)), 'data-test': `badge-${word.slice(6)}` }, () => t(word));
  return [
    record.complete ? badge(true, 'badge.complete') : badge(false, 'badge.incomplete', 'badge.incomplete.why'),
    record.stored ? badge(true, 'badge.stored') : badge(false, 'badge.unstored', 'badge.unstored.why'),
    record.truncated && badge(false, 'badge.truncated', 'badge.truncated.why'),
    record.late && badge(false, 'badge.late', 'badge.late.why'),
  ];
}

/** Title of a message: its search queries, otherwise the title of its first source. @param {any} record @returns {() => string} */
export function heading(record) {
  const text = record.queries?.[0] || record.citations?.[0]?.title || record.summary;
  return () => text || t('messages.untitled');
}

/** A curl command that creates a record. @param {any[]} [routes] */
function curl(routes = []) {
  const route = routes.find((one) => one.models?.length);
  const header = key() ? " -H 'x-citetap-key: …'" : '';
  const body = JSON.stringify({ model: route?.models[0] ?? '…', stream: true, messages: [{ role: 'user', content: route?.questions?.[0] ?? '…' }] });
  if (routes.length && !route) return `curl -N ${resolveUrl(`${routes[0].prefix}/…`)}${header} -d '{…}'`;
  return `curl -N ${resolveUrl('/v1/chat/completions')}${header} -d '${body.replaceAll("'", "'\\''")}'`;
}

/** @param {any} record */
function item(record) {
  const sites = [...new Set((record.citations ?? []).map((/** @type {any} */ one) => one.siteName || one.hostname).filter(Boolean))];
  const n = record.citations?.length ?? 0;
  const cited = record.stats?.citedCount ?? 0;
  const odd = badges(record).filter((badge) => badge && badge.classList.contains('warn'));
  return h('li', { 'data-test': 'message' },
    h('a', { class: 'message', href: recordLink(record) },
      h('span', { class: 'message-title' }, heading(record)),
      h('span', { class: 'message-count' }, () => (n ? t('messages.sources', { n }) : t('messages.nosources')), n > 0 && h('span', { class: 'note' }, () => t('messages.cited', { n: cited }))),
      h('span', { class: 'message-sites note' }, sites.slice(0, 4).join(' · ') + (sites.length > 4 ? ` +${sites.length - 4}` : '')),
      h('span', { class: 'message-facts note' },
        h('time', { datetime: record.createdAt, title: () => dateTime(record.createdAt) }, () => ago(record.createdAt)),
        ` · ${[record.route || record.provider, record.model].filter(Boolean).join(' · ')}`,
        odd.length > 0 && ' ', ...odd)));
}

/** @param {URLSearchParams} params @returns {import('./main.js').Page} */
export function messagesPage(params) {
  /** @type {string | null} */ let next = null;
  let shown = 0;
  let lastLoad = 0;
  /** @type {any} */ let typing;

  /** @param {typeof FILTERS[number]} name @param {string} type */
  const input = (name, type) => h('input', { id: `filter-${name}`, name, type, 'data-test': `filter-${name}`, autocomplete: 'off', spellcheck: 'false' });
  const fields = {
    q: input('q', 'search'),
    domain: input('domain', 'text'),
    provider: h('select', { id: 'filter-provider', name: 'provider', 'data-test': 'filter-provider' }, h('option', { value: '' }, () => t('messages.any'))),
    conversation: input('conversation', 'text'),
    since: input('since', 'date'),
    until: input('until', 'date'),
  };
  fields.domain.placeholder = 'example.com';
  localized(fields.q, () => (fields.q.placeholder = t('messages.search')));
  /** @param {typeof FILTERS[number]} name */
  const labelled = (name) => h('div', { class: 'field' }, h('label', { for: `filter-${name}` }, () => t(`messages.${name}`)), fields[name]);
  const clear = h('button', { type: 'button', class: 'quiet', hidden: true, 'data-test': 'clear-filters', onclick: () => {
    set(new URLSearchParams());
    changed();
  } }, () => t('messages.clear'));
  const narrow = h('details', { class: 'narrow' }, h('summary', { 'data-test': 'more-filters', onclick: () => setTimeout(() => narrow.open && fields.domain.focus()) }, () => t('messages.filters')),
    h('div', { class: 'fields' }, ...FILTERS.slice(1).map(labelled)));
  const form = h('form', { class: 'filters', role: 'search', 'data-test': 'filters', oninput: () => {
    clearTimeout(typing);
    typing = setTimeout(changed, 300);
  }, onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    clearTimeout(typing);
    changed();
  } }, h('label', { class: 'unseen', for: 'filter-q' }, () => t('messages.q')), fields.q, narrow, clear);

  const list = h('ol', { class: 'messages', 'data-test': 'messages' });
  const more = h('button', { type: 'button', hidden: true, 'data-test': 'load-more', onclick: () => load(next) }, () => t('messages.more'));
  const status = h('p', { class: 'note', role: 'status', 'data-test': 'messages-status' });
  const empty = h('div', { class: 'empty', hidden: true });
  const element = h('div', { class: 'page', 'data-test': 'page-messages' },
    h('div', { class: 'page-head' }, h('h1', {}, () => t('messages.title')), h('p', { class: 'lead' }, () => t('messages.lead'))),
    form, empty, list, h('div', { class: 'row' }, more, status));

  /** @returns {Filters} */
  const filters = () => /** @type {Filters} */ (Object.fromEntries(FILTERS.map((name) => [name, fields[name].value.trim()])));
  const filtered = () => FILTERS.some((name) => fields[name].value.trim() !== '');

  /** Adds a provider to the filter, once. @param {string} name */
  function offer(name) {
    const known = [...fields.provider.options].some((option) => option.value === name);
    if (!known) fields.provider.append(h('option', { value: name }, name));
  }
  json('/console/routes').then((known) => known.providers.forEach(offer), () => {});

  /** @param {URLSearchParams} from */
  function set(from) {
    const provider = from.get('provider') ?? '';
    if (provider) offer(provider);
    for (const name of FILTERS) fields[name].value = from.get(name) ?? '';
    if (FILTERS.slice(1).some((name) => fields[name].value)) narrow.open = true;
  }

  function changed() {
    // Put the filters into the URL for reloads and shared links, but do not add a history entry for every letter.
    history.replaceState(null, '', query('#/messages', filters()));
    load(null);
  }

  /** @param {import('./dom.js').Child[]} what */
  function showMessage(...what) {
    fill(empty, ...what);
    empty.hidden = what.length === 0;
  }

  /** @param {string | null} cursor */
  async function load(cursor) {
    const turn = ++lastLoad;
    clear.hidden = !filtered();
    const { since, until, ...rest } = filters();
    const path = query('/citations', { ...rest, since: since && midnight(since, 0), until: until && midnight(until, 1), limit: PAGE, cursor });
    status.textContent = t('loading');
    more.disabled = true;
    try {
      const page = await json(path);
      if (turn !== lastLoad) return;
      showMessage();
      if (cursor === null) {
        shown = 0;
        list.replaceChildren();
      }
      for (const record of page.items) list.append(item(record));
      shown += page.items.length;
      next = page.items.length < PAGE ? null : page.next;
      more.hidden = !next;
      status.textContent = shown ? t(next ? 'messages.shown' : 'messages.all', { n: shown }) : '';
      if (shown === 0) nothing();
    } catch (error) {
      if (turn !== lastLoad) return;
      status.textContent = '';
      const trouble = error instanceof ApiError ? error : new ApiError(String(error));
      showMessage(h('div', { class: 'notice bad', role: 'alert' }, h('p', { class: 'headline' }, trouble.message), h('p', {}, () => trouble.advice()), h('button', { type: 'button', onclick: () => load(cursor) }, () => t('retry'))));
    } finally {
      more.disabled = false;
    }
  }

  function nothing() {
    if (filtered()) return showMessage(h('p', { class: 'headline', 'data-test': 'no-match' }, () => t('messages.none')), h('p', {}, () => t('messages.none.hint')));
    const command = h('pre', { class: 'code', tabindex: '0', 'data-test': 'empty-curl' }, curl());
    json('/console/routes').then((known) => (command.textContent = curl(known.routes)), () => {});
    showMessage(
      h('p', { class: 'headline', 'data-test': 'empty-store' }, () => t('messages.empty')),
      h('p', {}, () => t('messages.empty.hint')),
      command,
      h('p', {}, h('a', { class: 'button main', href: '#/' }, icon('chat'), h('span', {}, () => t('messages.to.chat')))));
  }

  set(params);
  load(null);
  return {
    element,
    title: () => t('messages.title'),
    paramsChanged(to) {
      set(to);
      load(null);
    },
    leave: () => clearTimeout(typing),
  };
}
