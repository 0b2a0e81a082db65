// One question and its answer: asked, streamed, and told whatever way it ends.
import '../component.js';
import { Trouble, ask, credentials, troubleOf } from './api.js';
import { h, icon, spoken } from './dom.js';
import { bytes, duration, lang, t } from './say.js';
import { timeline } from './timeline.js';
import { Tape } from './wire.js';

/** @typedef {import('../types.d.ts').StreamEvent} StreamEvent */
/**
 * @typedef {object} Asked
 * @property {string} route
 * @property {string} words what is shown as the question
 * @property {string} path
 * @property {string} body
 * @property {Record<string, string>} headers
 */
/**
 * @typedef {object} Turn
 * @property {Asked} asked
 * @property {HTMLElement} element
 * @property {Tape} tape
 * @property {() => void} stop
 * @property {() => string} text
 * @property {() => any} record
 */

/** @param {any} record */
export const recordLink = (record) =>
  `#/messages/${encodeURIComponent(record.messageId)}${record.provider ? `?provider=${encodeURIComponent(record.provider)}` : ''}`;

/**
 * @param {Asked} asked
 * @param {{ again: () => void, wire: (tape: Tape) => void, ended: () => void }} to
 * @returns {Turn}
 */
export function turn(asked, to) {
  const abort = new AbortController();
  const tape = new Tape(asked.words);
  const steps = timeline();
  const answer = h('cite-answer', { 'data-test': 'answer' });
  answer.headers = credentials();
  spoken(answer, () => {
    answer.lang = lang();
    if (answer.record) answer.record = answer.record;
  });
  const notice = h('div', { class: 'notice', role: 'alert', hidden: true, 'data-test': 'notice' });
  const foot = h('footer', { class: 'turn-foot', hidden: true });
  const element = h('article', { class: 'turn', 'data-test': 'turn', 'data-state': 'streaming' },
    h('header', {}, h('h2', { class: 'question', tabindex: '-1' }, asked.words), h('p', { class: 'note' }, asked.route)),
    steps.element, answer, notice, foot);

  let ended = false;
  /** @type {Extract<StreamEvent, {type: 'error'}> | null} */ let fault = null;

  /** @param {'complete' | 'stopped' | 'broke'} how */
  function finish(how) {
    if (ended) return;
    ended = true;
    steps.end(how === 'broke' && tape.count === 0 ? 'failed' : how);
    element.dataset.state = how;
    const record = steps.record;
    const took = (performance.now() - tape.started) / 1000;
    const links = h('span', { class: 'row' },
      record?.messageId && h('a', { class: 'button', href: recordLink(record), 'data-test': 'record-link' }, icon('messages'), h('span', {}, () => t('chat.record'))),
      h('button', { type: 'button', class: 'wire-link', 'data-test': 'wire-link', onclick: () => to.wire(tape) }, () => t('chat.wire')));
    foot.append(links, h('span', { class: 'note' }, () => t('chat.facts', { frames: tape.count, bytes: bytes(tape.size), time: duration(took) })));
    foot.hidden = tape.count === 0;
    to.ended();
  }

  /** @param {() => string} said @param {() => string} advice @param {boolean} [bad] */
  function tell(said, advice, bad = true) {
    notice.classList.toggle('bad', bad);
    notice.replaceChildren(
      h('p', { class: 'said' }, said),
      h('p', {}, advice),
      h('button', { type: 'button', 'data-test': 'again', onclick: to.again }, () => t('retry')));
    notice.hidden = false;
  }

  answer.addEventListener('cite-event', (event) => {
    const { detail } = event;
    if (detail.type === 'error') fault = detail;
    if (detail.type !== 'end') return steps.event(detail);
    if (abort.signal.aborted) {
      tell(() => t('trouble.stopped'), () => '', false);
      finish('stopped');
    } else if (fault && fault.code !== 'cut') {
      const { message, code } = fault;
      tell(() => `${t('step.error')}: ${message}${code ? ` (${code})` : ''}`, () => t('advice.server'));
      finish('broke');
    } else if (!detail.complete) {
      tell(() => t(fault ? 'trouble.cut' : 'trouble.broke'), () => t('advice.upstream-ended'));
      finish('broke');
    } else {
      if (!answer.text) tell(() => t('trouble.nothing'), () => '', false);
      finish('complete');
    }
  });

  async function run() {
    steps.ask();
    try {
      const response = await ask(asked.path, { method: 'POST', body: asked.body, headers: asked.headers, signal: abort.signal });
      answer.headers = credentials();
      if (!response.ok) throw await troubleOf(response);
      await answer.stream(response, { onFrame: (frame) => tape.add(frame) });
    } catch (error) {
      if (abort.signal.aborted) {
        tell(() => t('trouble.stopped'), () => '', false);
        finish('stopped');
      } else {
        const trouble = error instanceof Trouble ? error : new Trouble(String(error));
        tell(() => trouble.message, () => trouble.advice());
        finish('broke');
      }
    }
  }
  // Once it is in the page: what is not does not render.
  queueMicrotask(run);
  return { asked, element, tape, stop: () => abort.abort(), text: () => answer.text, record: () => steps.record };
}
