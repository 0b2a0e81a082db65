// The record page: sources, corroboration, scores and exports of one message.
import '../component.js';
import { ApiError, request, credentials, json, resolveUrl, query, errorFromResponse } from './api.js';
import { copy, fill, h, icon, save, localized } from './dom.js';
import { code, copyButton } from './json.js';
import { badges, heading } from './messages.js';
import { key } from './prefs.js';
import { dateTime, lang, number, score, t } from './i18n.js';
import { scores } from './scores.js';
import { recordLink } from './turn.js';

const FORMATS = { markdown: 'md', footnotes: 'md', html: 'html', csv: 'csv', bibtex: 'bib', ris: 'ris', csl: 'json', prompt: 'txt', json: 'json' };

/** @param {Array<[() => string, import('./dom.js').Child]>} pairs pairs without a value are omitted */
export const facts = (pairs) => h('dl', { class: 'facts' },
  ...pairs.filter(([, value]) => value !== null && value !== undefined && value !== '').map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, value))));

/** @param {string} id @param {string} path @param {any} record */
function exported(id, path, record) {
  const links = Object.entries(FORMATS).map(([format, ending]) => {
    const name = `citations-${id}.${ending}`;
    const from = query(path, { format, provider: record.provider });
    return h('a', { class: 'button', href: resolveUrl(from), download: name, 'data-test': `export-${format}`, onclick: async (/** @type {Event} */ event) => {
      // A link cannot send the key header.
      if (!key()) return;
      event.preventDefault();
      const response = await request(from);
      if (response.ok) save(await response.blob(), name);
    } }, format);
  });
  return h('section', { class: 'block', 'data-test': 'exports' },
    h('h2', {}, () => t('record.export')), h('p', { class: 'note' }, () => t('record.export.note')),
    h('div', { class: 'row wrap' }, ...links));
}

/** @param {any} record */
function corroboration(record) {
  const found = record.corroboration;
  if (!found) return null;
  const yes = (/** @type {boolean} */ is) => () => t(is ? 'record.yes' : 'record.no');
  return h('section', { class: 'block', 'data-test': 'corroboration' },
    h('h2', {}, () => t('record.corroboration')), h('p', { class: 'note' }, () => t('record.corroboration.note')),
    facts([
      [() => t('record.confidence'), () => score(found.confidence)],
      [() => t('record.average'), () => score(found.averageScore)],
      [() => t('record.sites'), () => number(found.uniqueDomains)],
      [() => t('record.multi'), yes(found.multiSource)],
      [() => t('record.official'), yes(found.officialConfirmed)],
      [() => t('record.sentiment'), found.sentiment],
      [() => t('record.triggered'), yes(found.triggered)],
    ]));
}

/** @param {any} record */
function counts(record) {
  const stats = record.stats ?? {};
  const names = /** @type {const} */ (['totalReturned', 'keptAfterFilter', 'citedCount', 'filteredCount', 'failedCount', 'dedupCount']);
  return h('section', { class: 'block', 'data-test': 'counts' }, h('h2', {}, () => t('record.stats')),
    facts([
      ...names.map((name) => /** @type {[() => string, () => string]} */ ([() => t(`record.${name}`), () => number(stats[name] ?? 0)])),
      [() => t('record.danglingMarkers'), (stats.danglingMarkers ?? []).map((/** @type {number} */ n) => `[${n}]`).join(' ')],
    ]));
}

/** A section whose content is created when it is opened. @param {() => string} title @param {string} test @param {() => Promise<any> | any} read */
function folded(title, test, read) {
  const inside = h('div', {});
  const details = h('details', { class: 'block folded', 'data-test': test }, h('summary', {}, h('h2', {}, title)), inside);
  details.addEventListener('toggle', async () => {
    if (!details.open || inside.childElementCount) return;
    fill(inside, h('p', { class: 'note' }, () => t('loading')));
    try {
      const text = JSON.stringify(await read(), null, 2);
      fill(inside, h('div', { class: 'row' }, copyButton(() => text)), code(text));
    } catch (error) {
      fill(inside, h('p', { class: 'headline bad' }, error instanceof Error ? error.message : String(error)));
    }
  });
  return details;
}

/** @param {string} path @param {any} record */
function actions(path, record) {
  const link = resolveUrl('/') + recordLink(record);
  const label = h('span', {}, () => t('record.permalink'));
  const share = h('button', { type: 'button', 'data-test': 'permalink', onclick: async () => {
    await copy(link);
    label.textContent = t('copied');
    setTimeout(() => (label.textContent = t('record.permalink')), 1500);
  } }, icon('link'), label);
  const sure = h('div', { class: 'notice', role: 'group', hidden: true, 'data-test': 'delete-sure', 'aria-label': () => t('record.delete') });
  const remove = h('button', { type: 'button', class: 'danger', 'data-test': 'delete', 'aria-expanded': 'false', onclick: () => opened(true) }, icon('trash'), h('span', {}, () => t('record.delete')));
  const keep = h('button', { type: 'button', 'data-test': 'delete-no', onclick: () => opened(false) }, () => t('record.delete.no'));
  const failure = h('p', { class: 'headline bad', role: 'alert' });
  /** @param {boolean} now */
  function opened(now) {
    sure.hidden = !now;
    remove.setAttribute('aria-expanded', String(now));
    (now ? keep : remove).focus();
  }
  sure.append(h('p', {}, () => t('record.delete.sure')), failure, h('div', { class: 'row' }, keep,
    h('button', { type: 'button', class: 'danger', 'data-test': 'delete-yes', onclick: async () => {
      try {
        await json(query(path, { provider: record.provider }), { method: 'DELETE' });
        location.hash = '#/messages';
      } catch (error) {
        failure.textContent = error instanceof Error ? error.message : String(error);
      }
    } }, () => t('record.delete.do'))));
  sure.addEventListener('keydown', (event) => event.key === 'Escape' && opened(false));
  return [h('div', { class: 'row' }, share, remove), sure];
}

/** @param {string} id @param {string} provider @returns {import('./main.js').Page} */
export function recordPage(id, provider) {
  const path = `/citations/${encodeURIComponent(id)}`;
  const abort = new AbortController();
  const body = h('div', { class: 'record' }, h('p', { class: 'note', role: 'status' }, () => t('loading')));
  const element = h('div', { class: 'page', 'data-test': 'page-record' },
    h('a', { class: 'back', href: '#/messages' }, icon('back'), h('span', {}, () => t('record.back'))), body);
  let called = () => t('record.title', { id });

  /** @param {any} record @param {boolean} flying */
  function show(record, flying) {
    called = heading(record);
    document.dispatchEvent(new Event('citetap-title'));
    const sources = h('cite-list', { 'data-test': 'sources' });
    sources.headers = credentials();
    localized(sources, () => (sources.lang = lang()));
    sources.record = record;
    fill(body,
      h('div', { class: 'page-head' },
        h('h1', {}, heading(record)),
        h('div', { class: 'row wrap' }, ...badges(record))),
      flying && h('div', { class: 'notice', role: 'status', 'data-test': 'in-flight' }, () => t('record.flight')),
      facts([
        [() => t('record.provider'), record.provider],
        [() => t('record.route'), record.route],
        [() => t('record.model'), record.model],
        [() => t('record.time'), record.createdAt && (() => dateTime(record.createdAt))],
        [() => t('record.conversation'), record.conversationId && h('a', { href: query('#/messages', { conversation: record.conversationId }) }, record.conversationId)],
        [() => t('record.summary'), record.summary],
        [() => 'ID', h('code', {}, record.messageId)],
      ]),
      ...actions(path, record),
      h('section', { class: 'block sources' }, sources),
      scores(record),
      h('div', { class: 'columns' }, corroboration(record), counts(record)),
      exported(id, path, record),
      folded(() => t('record.bundle'), 'bundle', () => json(query(path, { format: 'bundle', provider: record.provider }))),
      folded(() => t('record.json'), 'record-json', () => record));
  }

  /** @param {number} wait seconds that citetap may wait for the stream to end */
  async function load(wait) {
    try {
      const response = await request(query(path, { provider, wait: wait || null }), { headers: { accept: 'application/json' }, signal: abort.signal });
      if (!response.ok) throw await errorFromResponse(response);
      const flying = response.status === 202;
      show(await response.json(), flying);
      if (flying && !abort.signal.aborted) load(20);
    } catch (error) {
      if (abort.signal.aborted) return;
      const trouble = error instanceof ApiError ? error : new ApiError(String(error));
      if (trouble.status === 404) {
        fill(body, h('div', { class: 'empty', 'data-test': 'unknown-record' }, h('h1', {}, () => t('record.unknown')), h('p', {}, () => t('record.unknown.hint')), h('p', {}, h('code', {}, id))));
      } else {
        fill(body, h('div', { class: 'notice bad', role: 'alert' }, h('p', { class: 'headline' }, trouble.message), h('p', {}, () => trouble.advice()), h('button', { type: 'button', onclick: () => load(0) }, () => t('retry'))));
      }
    }
  }
  load(0);
  return { element, title: () => called(), leave: () => abort.abort() };
}
