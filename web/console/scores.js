// A table of the scores of a record's sources, as bars with numbers.
import { h } from './dom.js';
import { score, t } from './i18n.js';

/** @param {number | null | undefined} value from 0 to 1 */
export function bar(value) {
  const share = Math.min(1, Math.max(0, value ?? 0));
  const filled = h('span', { class: 'bar-fill' });
  filled.style.setProperty('--share', String(share));
  return h('span', { class: 'bar', 'aria-hidden': 'true' }, filled);
}

/** @param {string | null | undefined} url */
const linkable = (url) => (url && /^https?:\/\//i.test(url) ? url : null);

/** @param {any} record */
export function scores(record) {
  const scored = (record.citations ?? []).filter((/** @type {any} */ one) => one.scores);
  if (scored.length === 0) return null;
  const parts = /** @type {const} */ (['final', 'relevance', 'freshness', 'authority']);
  const cell = (/** @type {any} */ one, /** @type {typeof parts[number]} */ part) =>
    h('td', { class: `num score ${part}`, 'data-label': () => t(`record.${part}`) }, bar(one.scores[part]), h('span', {}, () => score(one.scores[part])));
  const row = (/** @type {any} */ one) => {
    const url = linkable(one.url);
    const words = one.title || one.url || one.hostname || `[${one.number}]`;
    return h('tr', {},
      h('th', { scope: 'row' }, h('span', { class: 'named' },
        h('span', { class: 'n' }, String(one.number)),
        h('span', { class: 'what' },
          url ? h('a', { href: url, rel: 'noopener noreferrer nofollow', referrerpolicy: 'no-referrer', target: '_blank' }, words) : words,
          h('span', { class: 'note' }, ` ${one.siteName || one.hostname || ''} `),
          one.status === 'filtered' && h('span', { class: 'badge warn' }, () => t('record.filtered')),
          !one.cited && one.status !== 'filtered' && h('span', { class: 'badge' }, () => t('record.notcited'))))),
      ...parts.map((part) => cell(one, part)));
  };
  return h('section', { class: 'block', 'data-test': 'scores' },
    h('h2', {}, () => t('record.scores')), h('p', { class: 'note' }, () => t('record.scores.note')),
    h('table', { class: 'scores' },
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, () => t('record.source')), ...parts.map((part) => h('th', { scope: 'col', class: 'num' }, () => t(`record.${part}`))))),
      h('tbody', {}, ...scored.map(row))));
}
