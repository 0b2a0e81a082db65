// The timeline of an answer: searches, reasoning and tool calls with their durations.
import { h, localized } from './dom.js';
import { duration, translateOr, t } from './i18n.js';

/** @typedef {import('../types.d.ts').StreamEvent} StreamEvent */
/**
 * @typedef {object} Step
 * @property {string} key consecutive events with the same key are one step
 * @property {HTMLElement} element
 * @property {HTMLElement} label
 * @property {() => string} say text of the label
 * @property {string} [message] the upstream's text for it
 * @property {HTMLElement} more
 * @property {HTMLElement} time
 * @property {number} since
 */

/** Common name of the stages of one step: `tool_call_start`, `tool_call_progress`, `tool_call_complete`; `x` and `finished_x`. @param {string} name */
const family = (name) => name.replace(/^finished_/, '').replace(/_(start|progress|complete|error)$/, '');

/** @param {string} name */
const over = (name) => /^finished_|_(complete|error)$/.test(name);

export function timeline() {
  const list = h('ol', { class: 'steps', 'aria-label': () => t('steps'), 'data-test': 'timeline' });
  /** @type {Step | null} */ let now = null;
  /** @type {Text | null} */ let thoughts = null;
  /** @type {HTMLElement | null} */ let sources = null;
  /** @type {any} */ let record = null;
  let done = false;
  const clock = setInterval(() => {
    if (now && list.isConnected) now.time.textContent = duration((performance.now() - now.since) / 1000);
  }, 200);

  function close() {
    if (!now) return;
    now.time.textContent = duration((performance.now() - now.since) / 1000);
    now.element.classList.remove('now');
    now = null;
  }

  /** @param {string} key @param {string} kind @param {() => string} label */
  function step(key, kind, label) {
    if (now?.key === key) return now;
    close();
    const time = h('span', { class: 'time' });
    const text = h('span', { class: 'label' });
    const more = h('span', { class: 'more' });
    const element = h('li', { class: `now ${kind}`, 'data-step': kind }, h('span', { class: 'line' }, text, more, time));
    if (sources) sources.before(element);
    else list.append(element);
    /** @type {Step} */
    const own = { key, element, label: text, say: label, more, time, since: performance.now() };
    localized(text, () => (text.textContent = own.say()));
    now = own;
    return own;
  }

  /** @param {Extract<StreamEvent, {type: 'stage'}> & {progress?: number}} event */
  function stage(event) {
    const { name, message, detail, queries, count, progress } = event;
    // Open WebUI repeats the status with its queries when a search is done.
    if (name === 'status' && now && message === now.message) return;
    // A search sends its queries first and its results later. The next round has other queries.
    const key = name === 'search' ? `search ${queries?.[0] ?? ''}` : `${family(name)} ${detail ?? ''}`;
    const repeats = !!queries?.length && queries.every((query) => message?.includes(query));
    const label = () => (repeats ? '' : message) || translateOr('step', family(name));
    const own = step(key, name.endsWith('_error') ? 'error' : 'stage', label);
    own.say = label;
    own.message = message;
    own.label.textContent = label();
    own.more.replaceChildren(...(queries ?? []).slice(0, 8).map((query) => h('q', { class: 'query' }, query)));
    if (detail && !queries?.length && !message?.includes(detail)) own.more.append(h('q', { class: 'query' }, detail));
    if (typeof progress === 'number' && !over(name)) {
      own.more.append(h('progress', { max: '100', value: String(progress), 'aria-label': label() }));
    }
    if (count !== undefined) own.element.dataset.count = String(count);
    if (over(name)) close();
  }

  /** @param {string} text */
  function think(text) {
    const before = now;
    const own = step('think', 'think', () => t('step.think'));
    if (own !== before || !thoughts) {
      thoughts = document.createTextNode('');
      const shown = h('details', { class: 'thoughts', 'data-test': 'thoughts' }, h('summary', {}, () => t('step.thoughts')), h('div', { class: 'thought' }, thoughts));
      own.element.append(shown);
    }
    thoughts.appendData(text);
  }

  function updateSources() {
    if (!sources || !record) return;
    const n = record.citations?.length ?? 0;
    const cited = record.stats?.citedCount ?? record.citations?.filter((/** @type {any} */ one) => one.cited).length ?? 0;
    const over = done || record.complete;
    const parts = [!over ? t('step.sofar', { n }) : n ? t('step.sources', { n, cited }) : t('step.sources.none')];
    if (record.complete) parts.push(t('step.final'));
    else if (done) parts.push(t('step.incomplete'));
    if (over) parts.push(t(record.stored ? 'step.stored' : 'step.unstored'));
    sources.textContent = parts.join(t('comma'));
  }

  return {
    element: list,
    get record() {
      return record;
    },
    ask: () => void step('ask', 'ask', () => t('step.ask')),
    /** @param {StreamEvent} event */
    event(event) {
      if (event.type === 'text') step('answer', 'answer', () => t('step.answer'));
      else if (event.type === 'thinking') think(event.text);
      else if (event.type === 'stage') stage(event);
      else if (event.type === 'citations') {
        record = event.record;
        if (!sources) {
          sources = h('li', { class: 'found', 'data-step': 'sources', 'data-test': 'timeline-sources' });
          list.append(sources);
          localized(sources, updateSources);
        } else updateSources();
      } else if (event.type === 'error') {
        close();
        step('error', 'error', () => t('step.error'));
      }
    },
    /** @param {'complete' | 'stopped' | 'broke' | 'failed'} how */
    end(how) {
      close();
      clearInterval(clock);
      done = true;
      if (how !== 'complete') {
        const last = step('end', 'error', () => t(`step.${how}`));
        close();
        last.time.textContent = '';
      }
      updateSources();
    },
  };
}
