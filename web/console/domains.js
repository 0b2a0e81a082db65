// The domains page: which sites the answers cite, by day and in total.
import { ApiError, request, json, resolveUrl, query } from './api.js';
import { chart } from './chart.js';
import { fill, h, icon, save } from './dom.js';
import { key } from './prefs.js';
import { number, percent, shortDay, t } from './i18n.js';
import { bar } from './scores.js';

const PERIODS = [7, 30, 90];
/** Number of sites with their own colour. All others share one series. */
const COLOURS = 6;
const ROWS = 20;
const DAY = 86_400_000;

/** @param {number} ms */
const dayOf = (ms) => new Date(ms).toISOString().slice(0, 10);

/** All days of a `/stats` response, including those without data. @param {any} stats */
function daysOf(stats) {
  const days = [];
  for (let at = Date.parse(stats.since); at < Date.parse(stats.until) && days.length < 400; at += DAY) days.push(dayOf(at));
  return days;
}

/** @param {any} stats @param {string[]} days */
function seriesOf(stats, days) {
  const at = new Map(days.map((day, index) => [day, index]));
  const names = stats.domains.slice(0, COLOURS).map((/** @type {any} */ one) => one.domain);
  /** @type {Map<string, number[]>} */
  const values = new Map(names.map((/** @type {string} */ name) => [name, days.map(() => 0)]));
  const others = days.map(() => 0);
  for (const row of stats.days) {
    const index = at.get(row.day);
    if (index === undefined) continue;
    let own = 0;
    for (const { domain, citations } of row.domains) {
      const line = values.get(domain);
      if (!line) continue;
      line[index] = (line[index] ?? 0) + citations;
      own += citations;
    }
    others[index] = (others[index] ?? 0) + Math.max(0, row.citations - own);
  }
  /** @type {import('./chart.js').Series[]} */
  const series = names.map((/** @type {string} */ name, /** @type {number} */ colour) => ({ name: () => name, values: values.get(name) ?? [], colour }));
  // "Others" has the same grey for any number of sites.
  if (others.some((value) => value > 0)) series.push({ name: () => t('domains.others'), values: others, colour: COLOURS });
  return series;
}

/** @param {any} totals */
function sums(totals) {
  /** @param {import('./i18n.js').TextKey} word @param {() => string} value */
  const one = (word, value) => h('div', { class: 'sum' }, h('dt', {}, () => t(word)), h('dd', {}, value));
  return h('dl', { class: 'sums', 'data-test': 'domain-totals' },
    one('domains.messages', () => number(totals.messages)),
    one('domains.with', () => number(totals.withSources)),
    one('domains.citations', () => number(totals.citations)),
    one('domains.cited', () => number(totals.cited)),
    one('domains.share', () => percent(totals.citedShare)));
}

/** @param {any} stats @param {string} provider */
function sites(stats, provider) {
  const most = Math.max(1, ...stats.domains.map((/** @type {any} */ one) => one.citations));
  const row = (/** @type {any} */ one) => h('tr', {},
    h('th', { scope: 'row' }, h('a', { href: query('#/messages', { domain: one.domain, provider, since: stats.since }), title: () => t('domains.open', { site: one.domain }) }, one.domain)),
    h('td', { class: 'num wide' }, bar(one.citations / most), h('span', {}, () => number(one.citations))),
    h('td', { class: 'num' }, () => number(one.cited)),
    h('td', { class: 'num' }, () => percent(one.citedShare)),
    h('td', { class: 'num' }, () => number(one.messages)));
  const head = (/** @type {import('./i18n.js').TextKey} */ word) => h('th', { scope: 'col', class: 'num' }, () => t(word));
  return h('section', { class: 'block' }, h('h2', {}, () => t('domains.table')),
    h('table', { class: 'sites', 'data-test': 'domain-table' },
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, () => t('domains.site')), head('domains.citations'), head('domains.cited'), head('domains.share'), head('domains.messages'))),
      h('tbody', {}, ...stats.domains.map(row))));
}

/** @param {string[]} days @param {import('./chart.js').Series[]} series */
function table(days, series) {
  const total = (/** @type {number} */ at) => series.reduce((sum, one) => sum + (one.values[at] ?? 0), 0);
  return h('details', { class: 'block folded', 'data-test': 'chart-table' }, h('summary', {}, h('h2', {}, () => t('domains.byday'))),
    h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': () => t('domains.byday') }, h('table', {},
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, () => t('domains.chart.day')), ...series.map((one) => h('th', { scope: 'col', class: 'num' }, one.name)), h('th', { scope: 'col', class: 'num' }, () => t('domains.total')))),
      h('tbody', {}, ...days.map((day, at) => h('tr', {}, h('th', { scope: 'row' }, () => shortDay(day)), ...series.map((one) => h('td', { class: 'num' }, number(one.values[at] ?? 0))), h('td', { class: 'num' }, number(total(at))))).reverse()))),
    h('p', { class: 'note' }, () => t('domains.utc')));
}

/** @param {URLSearchParams} params @returns {import('./main.js').Page} */
export function domainsPage(params) {
  let lastLoad = 0;
  /** @type {any} */ let stats = null;
  const period = h('div', { class: 'segments', role: 'group', 'aria-label': () => t('domains.period') });
  const provider = h('select', { id: 'domains-provider', 'data-test': 'domains-provider', onchange: changed }, h('option', { value: '' }, () => t('messages.any')));
  let days = 30;
  for (const one of PERIODS) {
    period.append(h('button', { type: 'button', 'data-days': one, 'data-test': `period-${one}`, onclick: () => {
      days = one;
      changed();
    } }, () => t('domains.days', { n: one })));
  }
  const csv = h('a', { class: 'button', download: 'sites.csv', 'data-test': 'domains-csv', onclick: async (/** @type {Event} */ event) => {
    if (!key()) return;
    event.preventDefault();
    const response = await request(path('csv'));
    if (response.ok) save(await response.blob(), 'sites.csv');
  } }, icon('down'), h('span', {}, () => t('domains.csv')));
  const body = h('div', { class: 'domains' });
  const element = h('div', { class: 'page', 'data-test': 'page-domains' },
    h('div', { class: 'page-head' }, h('h1', {}, () => t('domains.title')), h('p', { class: 'lead' }, () => t('domains.lead'))),
    h('div', { class: 'row wrap tools' }, period, h('label', { class: 'inline', for: 'domains-provider' }, h('span', {}, () => t('messages.provider')), provider), csv),
    body);

  const path = (/** @type {string} */ format) => query('/stats', { since: dayOf(Date.now() - (days - 1) * DAY), provider: provider.value, top: format ? null : ROWS, format });

  /** @param {URLSearchParams} from */
  function set(from) {
    days = PERIODS.find((one) => String(one) === from.get('days')) ?? 30;
    const wanted = from.get('provider') ?? '';
    known([wanted]);
    provider.value = wanted;
  }

  /** @param {string[]} names */
  function known(names) {
    for (const name of names) {
      if (name && ![...provider.options].some((option) => option.value === name)) provider.append(h('option', { value: name }, name));
    }
  }

  function changed() {
    history.replaceState(null, '', query('#/domains', { days: days === 30 ? null : days, provider: provider.value }));
    load();
  }

  function show() {
    if (!stats) return;
    if (stats.totals.citations === 0) {
      return fill(body, h('div', { class: 'empty', 'data-test': 'domains-empty' }, h('p', { class: 'headline' }, () => t('domains.empty')), h('p', {}, () => t('domains.empty.hint')), h('p', {}, h('a', { class: 'button main', href: '#/' }, icon('chat'), h('span', {}, () => t('messages.to.chat'))))));
    }
    const all = daysOf(stats);
    const series = seriesOf(stats, all);
    fill(body, sums(stats.totals), h('section', { class: 'block' }, h('h2', {}, () => t('domains.chart')), chart(all, series)), sites(stats, provider.value), table(all, series));
  }

  async function load() {
    const turn = ++lastLoad;
    for (const button of period.children) button.setAttribute('aria-pressed', String(button.getAttribute('data-days') === String(days)));
    csv.href = resolveUrl(path('csv'));
    try {
      const got = await json(path(''));
      if (turn !== lastLoad) return;
      stats = got;
      known(stats.providers.map((/** @type {any} */ one) => one.provider));
      show();
    } catch (error) {
      if (turn !== lastLoad) return;
      const trouble = error instanceof ApiError ? error : new ApiError(String(error));
      fill(body, h('div', { class: 'notice bad', role: 'alert' }, h('p', { class: 'headline' }, trouble.message), h('p', {}, () => trouble.advice()), h('button', { type: 'button', onclick: load }, () => t('retry'))));
    }
  }

  set(params);
  // The chart draws its labels, so a change of language redraws it.
  document.addEventListener('citetap-language', show);
  load();
  return {
    element,
    title: () => t('domains.title'),
    paramsChanged(to) {
      set(to);
      load();
    },
    leave: () => document.removeEventListener('citetap-language', show),
  };
}
