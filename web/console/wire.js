// The wire panel: the raw frames of an answer as they arrive, with citetap's own highlighted.
import { fill, h, localized } from './dom.js';
import { code, copyButton, indented } from './json.js';
import { bytes, number, t } from './i18n.js';

/** @typedef {import('../types.d.ts').Frame} Frame */
/** @typedef {{ at: number, size: number, frame: Frame, before?: Frame, row: HTMLElement | null, gone: boolean }} Entry */

/** Maximum number of frames in a log. The oldest are dropped, except citetap's own. */
export const KEPT_FRAMES = 2000;
/** Maximum number of characters in a log. */
const KEPT_CHARACTERS = 8_000_000;
/** Maximum number of rows created at once. More would block the page. */
const ROWS_AT_ONCE = 120;
/** Rows per chunk. The browser skips layout and painting of chunks that are out of view. */
const ROWS_A_CHUNK = 50;
/** Interval at which rows are added. Each addition causes a layout of the page. */
const PACE_MS = 100;

const encoder = new TextEncoder();

/** The frames of one answer. */
export class FrameLog {
  /** @type {Entry[]} */ entries = [];
  count = 0;
  size = 0;
  dropped = 0;
  #characters = 0;
  /** @type {Frame | undefined} */ #last;
  /** @type {(added: Entry, gone: Entry[]) => void} */ changed = () => {};

  /** @param {string} name the question */
  constructor(name) {
    this.name = name;
    this.started = performance.now();
  }

  /** @param {Frame} frame */
  add(frame) {
    const size = encoder.encode(frame.raw).length;
    const entry = { at: performance.now() - this.started, size, frame, before: this.#last, row: null, gone: false };
    if (!frame.ours) this.#last = frame;
    this.entries.push(entry);
    this.count += 1;
    this.size += size;
    this.#characters += frame.raw.length;
    const gone = [];
    while (this.entries.length > KEPT_FRAMES || (this.#characters > KEPT_CHARACTERS && this.entries.length > 1)) {
      const oldest = this.entries.findIndex((one) => !one.frame.ours);
      const [out] = this.entries.splice(Math.max(oldest, 0), 1);
      if (!out) break;
      gone.push(out);
      out.gone = true;
      this.dropped += 1;
      this.#characters -= out.frame.raw.length;
    }
    this.changed(entry, gone);
  }
}

/** @param {Frame} frame @returns {any} the record in one of citetap's frames */
function recordIn(frame) {
  try {
    const json = JSON.parse(frame.data ?? '');
    return [json.citetap, json.citations, json.data, json].find((one) => one?.type === 'citations');
  } catch {
    return undefined;
  }
}

/** @param {Frame} frame */
function describeOurs(frame) {
  const record = recordIn(frame);
  if (!record) return t('wire.heartbeat');
  const n = record.citations?.length ?? 0;
  if (!record.complete && !record.stored) return t('wire.sofar', { n });
  return t('wire.final', { n, stored: t(record.stored ? 'step.stored' : 'step.unstored') });
}

/** The start of a frame. If the previous frame starts alike, the text from the first key that differs. @param {Frame} frame @param {Frame} [before] */
function preview(frame, before) {
  const text = frame.data ?? frame.raw;
  const other = before?.data ?? '';
  let same = 0;
  while (same < text.length && text[same] === other[same]) same += 1;
  const from = same < text.length ? text.lastIndexOf(',"', same) + 1 : 0;
  return (from > 24 ? '… ' : '') + text.slice(from > 24 ? from : 0).slice(0, 160).replace(/\s+/g, ' ');
}

/** @param {Frame} frame */
const frameName = (frame) => frame.event || (frame.data === undefined ? 'comment' : 'data');

/** @param {Frame} frame */
function frameDetails(frame) {
  const pretty = frame.data === undefined ? null : indented(frame.data);
  const shown = h('div', {}, pretty === null ? code(frame.raw, false) : code(pretty));
  if (pretty === null) return shown;
  let raw = false;
  const label = h('span', {}, () => t(raw ? 'wire.pretty' : 'wire.raw'));
  const swap = h('button', { type: 'button', class: 'small', 'data-test': 'wire-raw', onclick: () => {
    raw = !raw;
    label.textContent = t(raw ? 'wire.pretty' : 'wire.raw');
    shown.replaceChildren(raw ? code(frame.raw, false) : code(pretty));
  } }, label);
  return h('div', { class: 'inside' }, h('div', { class: 'row' }, swap, copyButton(() => (raw ? frame.raw : pretty))), shown);
}

/** @param {Entry} entry */
function row({ at, size, frame, before }) {
  const summary = h('summary', {},
    h('span', { class: 'at' }, number(Math.round(at))),
    h('span', { class: 'name' }, frameName(frame)),
    h('span', { class: 'size' }, bytes(size)));
  if (frame.ours) summary.append(h('span', { class: 'label', 'data-test': 'wire-label' }, () => describeOurs(frame)));
  else summary.append(h('span', { class: 'preview' }, preview(frame, before)));
  const details = h('details', {}, summary);
  details.addEventListener('toggle', () => {
    if (details.open) details.append(frameDetails(frame));
    else details.lastElementChild?.matches('summary') || details.lastElementChild?.remove();
  });
  return h('div', { role: 'listitem', class: frame.ours ? 'frame ours' : 'frame', 'data-test': frame.ours ? 'wire-ours' : 'wire-frame' }, details);
}

/** Example frames, shown before the first answer. */
function example() {
  const line = (/** @type {string} */ at, /** @type {string} */ name, /** @type {string} */ data, ours = false) =>
    h('li', { class: ours ? 'frame ours' : 'frame' }, h('div', { class: 'summary' }, h('span', { class: 'at' }, at), h('span', { class: 'name' }, name), h('span', { class: 'size' }), h('span', { class: ours ? 'label' : 'preview' }, data)));
  const ours = line('1650', 'citations', '', true);
  const label = ours.querySelector('.label');
  if (label) localized(label, () => (label.textContent = t('wire.final', { n: 6, stored: t('step.stored') })));
  return h('div', { class: 'example' },
    h('p', {}, () => t('wire.empty.lead')),
    h('ol', { class: 'rows' },
      line('1602', 'CHUNK_DELTA', '{"text":" and check the"}'),
      line('1641', 'CHUNK_DELTA', '{"text":" quote[5]."}'),
      ours,
      line('1652', 'SSE_REPLY_END', '{"end_type":1,…}')));
}

/** The panel. Shows one of several logs. */
export function wirePanel() {
  /** @type {FrameLog[]} */ const logs = [];
  /** @type {FrameLog | null} */ let log = null;
  /** @type {Entry[]} */ let waiting = [];
  /** @type {any} */ let timer = 0;

  const rows = h('div', { role: 'list', class: 'rows', 'data-test': 'wire-rows', 'aria-label': () => t('wire.title') });
  // Scroll along with new rows unless the user has scrolled up.
  let follows = true;
  const scroller = h('div', { class: 'scroller', onscroll: () => {
    follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
  } }, rows);
  const count = h('span', { class: 'note', 'data-test': 'wire-count' });
  const dropped = h('p', { class: 'note', hidden: true, 'data-test': 'wire-dropped' });
  const none = h('p', { class: 'note nothing', hidden: true });
  const pick = h('select', { 'aria-label': () => t('wire.turn'), 'data-test': 'wire-turn', hidden: true, onchange: () => {
    const chosen = logs[Number(pick.value)];
    if (chosen) show(chosen);
  } });
  const only = h('input', { type: 'checkbox', id: 'only-ours', 'data-test': 'wire-only-ours', onchange: () => {
    element.classList.toggle('only-ours', only.checked);
    updateSummary();
  } });
  const empty = example();
  const element = h('section', { class: 'wire', 'data-test': 'wire', 'aria-labelledby': 'wire-title' },
    h('div', { class: 'wire-head' },
      h('h2', { id: 'wire-title' }, () => t('wire.title')),
      pick,
      count,
      h('label', { class: 'check', for: 'only-ours' }, only, h('span', {}, () => t('wire.ours')))),
    dropped, empty, none, scroller);

  function updateSummary() {
    if (!log) return;
    count.textContent = t('wire.count', { n: log.count, bytes: bytes(log.size) });
    dropped.hidden = log.dropped === 0;
    if (log.dropped > 0) dropped.textContent = t('wire.dropped', { kept: KEPT_FRAMES, n: log.dropped });
    none.hidden = log.entries.some((entry) => !only.checked || entry.frame.ours);
    if (!none.hidden) none.textContent = t(log.count === 0 ? 'wire.nothing' : 'wire.none.ours');
  }

  function draw() {
    timer = 0;
    const batch = waiting.splice(0, ROWS_AT_ONCE);
    for (const entry of batch) {
      if (entry.gone) continue;
      let chunk = rows.lastElementChild;
      if (!chunk || chunk.childElementCount >= ROWS_A_CHUNK) {
        chunk = h('div', { role: 'presentation', class: 'chunk' });
        rows.append(chunk);
      }
      chunk.append((entry.row = row(entry)));
    }
    if (follows) scroller.scrollTop = 1e9;
    updateSummary();
    if (waiting.length > 0) scheduleDraw();
  }

  function scheduleDraw() {
    timer ||= setTimeout(() => requestAnimationFrame(draw), PACE_MS);
  }

  /** @param {FrameLog} to */
  function show(to) {
    if (log) log.changed = () => {};
    for (const entry of log?.entries ?? []) entry.row = null;
    log = to;
    follows = true;
    rows.replaceChildren();
    empty.hidden = true;
    waiting = [...to.entries];
    pick.value = String(logs.indexOf(to));
    to.changed = (entry, gone) => {
      waiting.push(entry);
      for (const out of gone) {
        const chunk = out.row?.parentElement;
        out.row?.remove();
        if (chunk?.childElementCount === 0) chunk.remove();
      }
      scheduleDraw();
    };
    scheduleDraw();
  }

  return {
    element,
    show,
    /** @param {FrameLog} added */
    add(added) {
      logs.push(added);
      pick.append(h('option', { value: String(logs.length - 1) }, `${logs.length}. ${added.name.slice(0, 60)}`));
      pick.hidden = logs.length < 2;
      show(added);
    },
    clear() {
      logs.length = 0;
      if (log) log.changed = () => {};
      log = null;
      waiting = [];
      fill(pick);
      pick.hidden = true;
      rows.replaceChildren();
      count.textContent = '';
      dropped.hidden = none.hidden = true;
      empty.hidden = false;
    },
  };
}
