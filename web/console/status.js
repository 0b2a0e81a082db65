// The status page: current activity from /metrics, /readyz and /console/status.
import { ApiError, request, json, errorFromResponse } from './api.js';
import { sparkline } from './chart.js';
import { fill, h } from './dom.js';
import { between, buckets, quantile, samples, sum, valuesOf } from './metrics.js';
import { facts } from './record.js';
import { ago, bytes, dateTime, duration, translateOr, number, t } from './i18n.js';

const EVERY_MS = 2000;
/** Number of readings kept: two minutes. */
const KEPT = 60;
const FIRST_BYTE = 'citetap_upstream_time_to_first_byte_seconds';
const DURATION = 'citetap_stream_duration_seconds';
const WAIT = 'citetap_commit_wait_seconds';

/** @typedef {{ at: number, all: import('./metrics.js').Sample[] }} Reading */

/** Rate per second between consecutive readings. @param {Reading[]} readings @param {string} name */
function rates(readings, name) {
  const values = readings.map((one) => sum(one.all, name));
  return readings.slice(1).map((one, at) => {
    const grown = (values[at + 1] ?? 0) - (values[at] ?? 0);
    return Math.max(0, grown) / Math.max(0.001, (one.at - (readings[at]?.at ?? 0)) / 1000);
  });
}

/** A histogram since the oldest kept reading, or since the start if nothing was counted since then. @param {Reading[]} readings @param {string} name */
function recent(readings, name) {
  const now = readings.at(-1)?.all ?? [];
  const all = buckets(now, name);
  const since = between(all, readings.length > 1 ? buckets(readings[0]?.all ?? [], name) : undefined);
  const isRecent = readings.length > 1 && (since.get(Infinity) ?? 0) > 0;
  return { counts: isRecent ? since : all, isRecent };
}

/** @param {() => string} label @param {string} value @param {string} note @param {string} test @param {number[]} [line] */
function tile(label, value, note, test, line) {
  return h('div', { class: 'tile', 'data-test': test }, h('dt', {}, label), h('dd', {}, h('strong', {}, value), h('span', { class: 'note' }, note)), line && sparkline(line));
}

/** @param {Reading[]} readings */
function tiles(readings) {
  const now = readings.at(-1)?.all ?? [];
  const span = duration(Math.round(((readings.at(-1)?.at ?? 0) - (readings[0]?.at ?? 0)) / 1000));
  const window = (/** @type {boolean} */ isRecent) => (isRecent ? t('status.window.recent', { time: span }) : t('status.window.all'));
  const all = (/** @type {string} */ name) => t('status.total', { n: sum(now, name) });
  const rate = (/** @type {string} */ name, /** @type {(value: number) => string} */ show, /** @type {import('./i18n.js').TextKey} */ word, /** @type {string} */ test) => {
    const line = rates(readings, name);
    return tile(() => t(word), show(line.at(-1) ?? 0), all(name), test, line);
  };
  const first = recent(readings, FIRST_BYTE);
  const took = recent(readings, DURATION);
  const waited = recent(readings, WAIT);
  const streams = readings.map((one) => sum(one.all, 'citetap_streams_in_flight'));
  const relayed = rates(readings, 'citetap_relayed_bytes_total');
  return h('dl', { class: 'tiles', 'data-test': 'tiles' },
    tile(() => t('status.streams'), number(streams.at(-1) ?? 0), '', 'tile-streams', streams),
    rate('citetap_requests_total', (value) => number(value, 1), 'status.requests', 'tile-requests'),
    rate('citetap_frames_total', (value) => number(value), 'status.frames', 'tile-frames'),
    tile(() => t('status.bytes'), bytes(relayed.at(-1) ?? 0), bytes(sum(now, 'citetap_relayed_bytes_total')), 'tile-bytes', relayed),
    tile(() => t('status.ttfb'), duration(quantile(first.counts, 0.5)), t('status.p95', { value: duration(quantile(first.counts, 0.95)) }) + t('comma') + window(first.isRecent), 'tile-ttfb'),
    tile(() => t('status.duration'), duration(quantile(took.counts, 0.5)), t('status.p95', { value: duration(quantile(took.counts, 0.95)) }) + t('comma') + window(took.isRecent), 'tile-duration'),
    tile(() => t('status.injections'), number(sum(now, 'citetap_injections_total')), t('status.sources', { n: sum(now, 'citetap_citations_extracted_total') }), 'tile-injections'),
    tile(() => t('status.wait'), duration(quantile(waited.counts, 0.95)), window(waited.isRecent), 'tile-wait'));
}

/** @param {import('./metrics.js').Sample[]} all */
function routes(all) {
  const names = valuesOf(all.filter((one) => one.name === 'citetap_requests_total'), 'route');
  if (names.length === 0) return h('p', { class: 'note' }, () => t('status.routes.none'));
  const head = (/** @type {import('./i18n.js').TextKey} */ word) => h('th', { scope: 'col', class: 'num' }, () => t(word));
  const row = (/** @type {string} */ name) => {
    const own = (/** @type {Record<string, string>} */ labels) => labels.route === name;
    const first = buckets(all, FIRST_BYTE, own);
    const took = buckets(all, DURATION, own);
    const pair = (/** @type {Map<number, number>} */ counts) => `${duration(quantile(counts, 0.5))} / ${duration(quantile(counts, 0.95))}`;
    return h('tr', {}, h('th', { scope: 'row' }, name),
      h('td', { class: 'num' }, number(sum(all, 'citetap_requests_total', own))),
      h('td', { class: 'num' }, number(sum(all, 'citetap_requests_total', (labels) => own(labels) && Number(labels.status) >= 400))),
      h('td', { class: 'num' }, number(sum(all, 'citetap_streams_ended_total', (labels) => own(labels) && labels.outcome !== 'complete'))),
      h('td', { class: 'num' }, pair(first)), h('td', { class: 'num' }, pair(took)));
  };
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': () => t('status.routes') }, h('table', { 'data-test': 'route-table' },
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, () => t('chat.route')), head('status.answers'), head('status.failed'), head('status.unfinished'), head('status.ttfb.both'), head('status.duration.both'))),
    h('tbody', {}, ...names.map(row))));
}

/** @param {any[]} list */
function faults(list) {
  if (list.length === 0) return h('p', { class: 'note', 'data-test': 'no-faults' }, () => t('status.faults.none'));
  const column = (/** @type {import('./i18n.js').TextKey} */ word) => h('th', { scope: 'col' }, () => t(word));
  const row = (/** @type {any} */ one) => h('tr', {},
    h('td', {}, h('time', { datetime: one.at, title: () => dateTime(one.at) }, () => ago(one.at))),
    h('td', {}, () => translateOr('fault', one.what), one.status && h('span', { class: 'note' }, ` ${one.status}`)),
    h('td', {}, one.route), h('td', {}, h('code', {}, one.requestId ?? '')));
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': () => t('status.faults') }, h('table', { 'data-test': 'fault-table' },
    h('thead', {}, h('tr', {}, column('status.when'), column('status.what'), column('chat.route'), column('status.request'))),
    h('tbody', {}, ...list.map(row))));
}

/** @returns {import('./main.js').Page} */
export function statusPage() {
  /** @type {Reading[]} */ let readings = [];
  /** @type {any} */ let status = null;
  let ready = true;
  let left = false;
  /** @type {any} */ let timer;
  let drawn = '';

  const light = h('span', { class: 'light', 'data-test': 'readiness' });
  const built = h('span', { class: 'note', 'data-test': 'version' });
  const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true });
  const now = h('div', {});
  const own = h('section', { class: 'block' });
  const store = h('div', { class: 'columns' });
  const last = h('section', { class: 'block', 'data-test': 'faults' });
  const element = h('div', { class: 'page status', 'data-test': 'page-status' },
    h('div', { class: 'page-head' }, h('h1', {}, () => t('status.title')), h('p', { class: 'row wrap' }, light, built)), trouble, now, store, last, own);

  function show() {
    const all = readings.at(-1)?.all ?? [];
    light.className = `light ${ready ? 'good' : 'bad'}`;
    light.textContent = t(status?.draining ? 'status.draining' : ready ? 'status.ready' : 'status.notready');
    if (status) {
      const up = (Date.parse(status.now) - Date.parse(status.startedAt)) / 1000;
      built.textContent = `${t('status.version', { version: status.version })} (${String(status.commit ?? '').slice(0, 10)})${t('comma')}${t('status.up', { time: duration(up) })}`;
      built.title = dateTime(status.startedAt);
    }
    if (all.length) {
      fill(now, tiles(readings));
      // Redraw tables only if their content changed, so that a text selection is kept.
      const content = JSON.stringify([all.filter((one) => one.name.endsWith('_total')), document.documentElement.lang]);
      if (content !== drawn) fill(own, h('h2', {}, () => t('status.routes')), routes(all));
      drawn = content;
    }
    if (!status) return;
    const { kind, healthy, queued, retrying, lastCommitMs } = status.store ?? {};
    fill(store,
      h('section', { class: 'block', 'data-test': 'store' }, h('h2', {}, () => t('status.store')), facts([
        [() => t('status.store.kind'), kind],
        [() => t('status.store.health'), h('span', { class: `light ${healthy ? 'good' : 'bad'}` }, t(healthy ? 'status.store.healthy' : 'status.store.unhealthy'))],
        [() => t('status.store.queued'), number(queued ?? 0)],
        [() => t('status.store.retrying'), number(retrying ?? 0)],
        [() => t('status.store.commit'), lastCommitMs === null || lastCommitMs === undefined ? '–' : duration(lastCommitMs / 1000)]])),
      h('section', { class: 'block' }, h('h2', {}, () => t('status.process')), facts([
        [() => t('status.memory'), bytes(sum(all, 'process_resident_memory_bytes'))],
        [() => t('status.fds'), number(sum(all, 'process_open_fds'))],
        [() => t('status.unread'), number(sum(all, 'citetap_frames_total', (labels) => labels.kind !== 'tapped'))],
        [() => t('status.untapped'), number(sum(all, 'citetap_tap_skipped_total'))],
        [() => t('status.search'), t(status.search ? 'status.search.on' : 'status.search.off')]])));
    const faultKey = JSON.stringify([status.faults, document.documentElement.lang, Math.floor(Date.now() / 30_000)]);
    if (last.dataset.key !== faultKey) fill(last, h('h2', {}, () => t('status.faults')), faults(status.faults ?? []));
    last.dataset.key = faultKey;
  }

  async function read() {
    clearTimeout(timer);
    if (left || document.hidden) return;
    try {
      const [metrics, probe, current] = await Promise.all([request('/metrics'), request('/readyz'), json('/console/status')]);
      ready = probe.ok;
      status = current;
      if (!metrics.ok) throw await errorFromResponse(metrics);
      readings = [...readings, { at: performance.now(), all: samples(await metrics.text()) }].slice(-KEPT);
      trouble.hidden = true;
    } catch (error) {
      const problem = error instanceof ApiError ? error : new ApiError(String(error));
      if (problem.status === 0) ready = false;
      fill(trouble, h('p', { class: 'headline' }, problem.status === 0 || problem.ours ? problem.message : t('status.nometrics', { why: problem.message })), h('p', {}, problem.advice()));
      trouble.hidden = false;
    }
    if (left) return;
    show();
    timer = setTimeout(read, EVERY_MS);
  }

  document.addEventListener('visibilitychange', read);
  document.addEventListener('citetap-language', show);
  read();
  return {
    element,
    title: () => t('status.title'),
    leave() {
      left = true;
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', read);
      document.removeEventListener('citetap-language', show);
    },
  };
}
