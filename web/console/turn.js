// One question and its answer: sends the request, shows the stream, and reports how it ended.
import '../component.js';
import { ApiError, request, credentials, errorFromResponse } from './api.js';
import { h, icon, localized } from './dom.js';
import { bytes, duration, lang, t } from './i18n.js';
import { timeline } from './timeline.js';
import { FrameLog } from './wire.js';

/** @typedef {import('../types.d.ts').StreamEvent} StreamEvent */
/**
 * @typedef {object} ChatRequest
 * @property {string} route
 * @property {string} question shown as the question
 * @property {string} path
 * @property {string} body
 * @property {Record<string, string>} headers
 */
/**
 * @typedef {object} Turn
 * @property {ChatRequest} chatRequest
 * @property {HTMLElement} element
 * @property {FrameLog} log
 * @property {() => void} stop
 * @property {() => string} text
 * @property {() => any} record
 */

/** @param {any} record */
export const recordLink = (record) =>
  `#/messages/${encodeURIComponent(record.messageId)}${record.provider ? `?provider=${encodeURIComponent(record.provider)}` : ''}`;

/**
 * @param {ChatRequest} chatRequest
 * @param {{ again: () => void, wire: (log: FrameLog) => void, ended: () => void }} to
 * @returns {Turn}
 */
export function turn(chatRequest, to) {
  const abort = new AbortController();
  const log = new FrameLog(chatRequest.question);
  const steps = timeline();
  const answer = h('cite-answer', { 'data-test': 'answer' });
  answer.headers = credentials();
  localized(answer, () => {
    answer.lang = lang();
    if (answer.record) answer.record = answer.record;
  });
  const notice = h('div', { class: 'notice', role: 'alert', hidden: true, 'data-test': 'notice' });
  const foot = h('footer', { class: 'turn-foot', hidden: true });
  const element = h('article', { class: 'turn', 'data-test': 'turn', 'data-state': 'streaming' },
    h('header', {}, h('h2', { class: 'question', tabindex: '-1' }, chatRequest.question), h('p', { class: 'note' }, chatRequest.route)),
    steps.element, answer, notice, foot);

  let ended = false;
  /** @type {Extract<StreamEvent, {type: 'error'}> | null} */ let fault = null;

  /** @param {'complete' | 'stopped' | 'broke'} how */
  function finish(how) {
    if (ended) return;
    ended = true;
    steps.end(how === 'broke' && log.count === 0 ? 'failed' : how);
    element.dataset.state = how;
    const record = steps.record;
    const took = (performance.now() - log.started) / 1000;
    const links = h('span', { class: 'row' },
      record?.messageId && h('a', { class: 'button', href: recordLink(record), 'data-test': 'record-link' }, icon('messages'), h('span', {}, () => t('chat.record'))),
      h('button', { type: 'button', class: 'wire-link', 'data-test': 'wire-link', onclick: () => to.wire(log) }, () => t('chat.wire')));
    foot.append(links, h('span', { class: 'note' }, () => t('chat.facts', { frames: log.count, bytes: bytes(log.size), time: duration(took) })));
    foot.hidden = log.count === 0;
    to.ended();
  }

  /** @param {() => string} reason @param {() => string} advice @param {boolean} [bad] */
  function showNotice(reason, advice, bad = true) {
    notice.classList.toggle('bad', bad);
    notice.replaceChildren(
      h('p', { class: 'headline' }, reason),
      h('p', {}, advice),
      h('button', { type: 'button', 'data-test': 'again', onclick: to.again }, () => t('retry')));
    notice.hidden = false;
  }

  answer.addEventListener('cite-event', (event) => {
    const { detail } = event;
    if (detail.type === 'error') fault = detail;
    if (detail.type !== 'end') return steps.event(detail);
    if (abort.signal.aborted) {
      showNotice(() => t('trouble.stopped'), () => '', false);
      finish('stopped');
    } else if (fault && fault.code !== 'cut') {
      const { message, code } = fault;
      showNotice(() => `${t('step.error')}: ${message}${code ? ` (${code})` : ''}`, () => t('advice.server'));
      finish('broke');
    } else if (!detail.complete) {
      showNotice(() => t(fault ? 'trouble.cut' : 'trouble.broke'), () => t('advice.upstream-ended'));
      finish('broke');
    } else {
      if (!answer.text) showNotice(() => t('trouble.nothing'), () => '', false);
      finish('complete');
    }
  });

  async function run() {
    steps.ask();
    try {
      const response = await request(chatRequest.path, { method: 'POST', body: chatRequest.body, headers: chatRequest.headers, signal: abort.signal });
      answer.headers = credentials();
      if (!response.ok) throw await errorFromResponse(response);
      await answer.stream(response, { onFrame: (frame) => log.add(frame) });
    } catch (error) {
      if (abort.signal.aborted) {
        showNotice(() => t('trouble.stopped'), () => '', false);
        finish('stopped');
      } else {
        const trouble = error instanceof ApiError ? error : new ApiError(String(error));
        showNotice(() => trouble.message, () => trouble.advice());
        finish('broke');
      }
    }
  }
  // Start after the caller has added the element: the component renders only inside a document.
  queueMicrotask(run);
  return { chatRequest, element, log, stop: () => abort.abort(), text: () => answer.text, record: () => steps.record };
}
