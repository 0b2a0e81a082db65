// The wire: the raw frames of an answer as they come, ours told apart.
import { fill, h, spoken } from './dom.js';
import { code, copyButton, indented } from './json.js';
import { bytes, number, t } from './say.js';

/** @typedef {import('../types.d.ts').Frame} Frame */
/** @typedef {{ at: number, size: number, frame: Frame, before?: Frame, row: HTMLElement | null, gone: boolean }} Entry */

/** Frames that a tape keeps. Beyond, the oldest go; ours stay. */
export const KEPT_FRAMES = 2000;
/** Characters that a tape keeps, whatever the frames' size. */
const KEPT_CHARACTERS = 8_000_000;
/** Rows that are made in one go: more would hold up the page. */
const ROWS_AT_ONCE = 120;
/** Rows that are laid out and painted together, or not at all while they are out of sight. */
const ROWS_A_CHUNK = 50;
/** Rows come at this pace, however fast frames do: each time the page is laid out anew. */
const PACE_MS = 100;

const encoder = new TextEncoder();

/** What one answer sent. */
export class Tape {
  /** @type {Entry[]} */ entries = [];
  count = 0;
  size = 0;
  dropped = 0;
  #characters = 0;
  /** @type {Frame | undefined} */ #last;
  /** @type {(added: Entry, gone: Entry[]) => void} */ changed = () => {};

  /** @param {string} name what was asked */
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

/** @param {Frame} frame @returns {any} the record in a frame of ours */
function recordIn(frame) {
  try {
    const json = JSON.parse(frame.data ?? '');
    return [json.citetap, json.citations, json.data, json].find((one) => one?.type === 'citations');
  } catch {
    return undefined;
  }
}

/** @param {Frame} frame */
function told(frame) {
  const record = recordIn(frame);
  if (!record) return t('wire.heartbeat');
  const n = record.citations?.length ?? 0;
  if (!record.complete && !record.stored) return t('wire.sofar', { n });
  return t('wire.final', { n, stored: t(record.stored ? 'step.stored' : 'step.unstored') });
}

/** What a frame begins with; where it begins as the one before it, from the first key that differs. @param {Frame} frame @param {Frame} [before] */
function preview(frame, before) {
  const text = frame.data ?? frame.raw;
  const other = before?.data ?? '';
  let same = 0;
  while (same < text.length && text[same] === other[same]) same += 1;
  const from = same < text.length ? text.lastIndexOf(',"', same) + 1 : 0;
  return (from > 24 ? '… ' : '') + text.slice(from > 24 ? from : 0).slice(0, 160).replace(/\s+/g, ' ');
}

/** @param {Frame} frame */
const called = (frame) => frame.event || (frame.data === undefined ? 'comment' : 'data');

/** @param {Frame} frame */
function inside(frame) {
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
    h('span', { class: 'name' }, called(frame)),
    h('span', { class: 'size' }, bytes(size)));
  if (frame.ours) summary.append(h('span', { class: 'label', 'data-test': 'wire-label' }, () => told(frame)));
  else summary.append(h('span', { class: 'preview' }, preview(frame, before)));
  const details = h('details', {}, summary);
  details.addEventListener('toggle', () => {
    if (details.open) details.append(inside(frame));
    else details.lastElementChild?.matches('summary') || details.lastElementChild?.remove();
  });
  return h('div', { role: 'listitem', class: frame.ours ? 'frame ours' : 'frame', 'data-test': frame.ours ? 'wire-ours' : 'wire-frame' }, details);
}

/** Six lines that tell what citetap does, where nothing has come yet. */
function example() {
  const line = (/** @type {string} */ at, /** @type {string} */ name, /** @type {string} */ data, ours = false) =>
    h('li', { class: ours ? 'frame ours' : 'frame' }, h('div', { class: 'summary' }, h('span', { class: 'at' }, at), h('span', { class: 'name' }, name), h('span', { class: 'size' }), h('span', { class: ours ? 'label' : 'preview' }, data)));
  const ours = line('1650', 'citations', '', true);
  const label = ours.querySelector('.label');
  if (label) spoken(label, () => (label.textContent = t('wire.final', { n: 6, stored: t('step.stored') })));
  return h('div', { class: 'example' },
    h('p', {}, () => t('wire.empty.lead')),
    h('ol', { class: 'rows' },
      line('1602', 'CHUNK_DELTA', '{"text":" and check the"}'),
      line('1641', 'CHUNK_DELTA', '{"text":" quote[5]."}'),
      ours,
      line('1652', 'SSE_REPLY_END', '{"end_type":1,…}')));
}

/** The panel that shows one tape of several. */
export function wirePanel() {
  /** @type {Tape[]} */ const tapes = [];
  /** @type {Tape | null} */ let tape = null;
  /** @type {Entry[]} */ let waiting = [];
  /** @type {any} */ let asked = 0;

  const rows = h('div', { role: 'list', class: 'rows', 'data-test': 'wire-rows', 'aria-label': () => t('wire.title') });
  // Who has scrolled up to read stays there.
  let follows = true;
  const scroller = h('div', { class: 'scroller', onscroll: () => {
    follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 40;
  } }, rows);
  const count = h('span', { class: 'note', 'data-test': 'wire-count' });
  const dropped = h('p', { class: 'note', hidden: true, 'data-test': 'wire-dropped' });
  const none = h('p', { class: 'note nothing', hidden: true });
  const pick = h('select', { 'aria-label': () => t('wire.turn'), 'data-test': 'wire-turn', hidden: true, onchange: () => {
    const chosen = tapes[Number(pick.value)];
    if (chosen) show(chosen);
  } });
  const only = h('input', { type: 'checkbox', id: 'only-ours', 'data-test': 'wire-only-ours', onchange: () => {
    element.classList.toggle('only-ours', only.checked);
    tell();
  } });
  const empty = example();
  const element = h('section', { class: 'wire', 'data-test': 'wire', 'aria-labelledby': 'wire-title' },
    h('div', { class: 'wire-head' },
      h('h2', { id: 'wire-title' }, () => t('wire.title')),
      pick,
      count,
      h('label', { class: 'check', for: 'only-ours' }, only, h('span', {}, () => t('wire.ours')))),
    dropped, empty, none, scroller);

  function tell() {
    if (!tape) return;
    count.textContent = t('wire.count', { n: tape.count, bytes: bytes(tape.size) });
    dropped.hidden = tape.dropped === 0;
    if (tape.dropped > 0) dropped.textContent = t('wire.dropped', { kept: KEPT_FRAMES, n: tape.dropped });
    none.hidden = tape.entries.some((entry) => !only.checked || entry.frame.ours);
    if (!none.hidden) none.textContent = t(tape.count === 0 ? 'wire.nothing' : 'wire.none.ours');
  }

  function draw() {
    asked = 0;
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
    tell();
    if (waiting.length > 0) soon();
  }

  function soon() {
    asked ||= setTimeout(() => requestAnimationFrame(draw), PACE_MS);
  }

  /** @param {Tape} to */
  function show(to) {
    if (tape) tape.changed = () => {};
    for (const entry of tape?.entries ?? []) entry.row = null;
    tape = to;
    follows = true;
    rows.replaceChildren();
    empty.hidden = true;
    waiting = [...to.entries];
    pick.value = String(tapes.indexOf(to));
    to.changed = (entry, gone) => {
      waiting.push(entry);
      for (const out of gone) {
        const chunk = out.row?.parentElement;
        out.row?.remove();
        if (chunk?.childElementCount === 0) chunk.remove();
      }
      soon();
    };
    soon();
  }

  return {
    element,
    show,
    /** @param {Tape} added */
    add(added) {
      tapes.push(added);
      pick.append(h('option', { value: String(tapes.length - 1) }, `${tapes.length}. ${added.name.slice(0, 60)}`));
      pick.hidden = tapes.length < 2;
      show(added);
    },
    clear() {
      tapes.length = 0;
      if (tape) tape.changed = () => {};
      tape = null;
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
