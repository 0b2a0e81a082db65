// The chat page: choose a route, send a question, and see the answer next to its raw frames.
import { json } from './api.js';
import { composer } from './composer.js';
import { fill, h } from './dom.js';
import { lang, t } from './i18n.js';
import { turn } from './turn.js';
import { wirePanel } from './wire.js';

/** @typedef {import('./turn.js').Turn} Turn */
/** @typedef {import('./turn.js').ChatRequest} ChatRequest */
/**
 * @typedef {object} Route
 * @property {string} name
 * @property {string} prefix
 * @property {string} provider
 * @property {string} profile
 * @property {string[]} models
 * @property {string[]} questions
 */

/** Maximum number of example questions shown at once. */
const OFFERED = 6;

/** @returns {import('./main.js').Page} */
export function chatPage() {
  /** @type {Turn[]} */ let turns = [];
  /** @type {Turn | null} */ let running = null;
  /** @type {Route[]} */ let routes = [];

  const wire = wirePanel();
  const offers = h('div', { class: 'offers' });
  const trouble = h('div', { class: 'notice bad', role: 'alert', hidden: true, 'data-test': 'routes-trouble' });
  const hero = h('section', { class: 'hero', 'data-test': 'hero' },
    h('h2', { class: 'claim' }, () => t('chat.head')),
    h('p', { class: 'lead' }, () => t('chat.lead')),
    trouble, offers);
  const list = h('div', { class: 'turns' });
  const more = h('div', { class: 'offers more', hidden: true });
  const bar = composer({ send, stop: () => running?.stop(), history });
  const restart = h('button', { type: 'button', class: 'quiet', hidden: true, 'data-test': 'new-conversation', onclick: begin }, () => t('chat.new'));

  bar.extra(restart);

  /** @param {'answer' | 'wire'} name */
  const choice = (name) => h('button', { type: 'button', 'aria-pressed': String(name === 'answer'), 'data-view': name, 'data-test': `view-${name}`, onclick: () => view(name) }, () => t(`chat.view.${name}`));
  const views = h('div', { class: 'views', role: 'group', 'aria-label': () => t('chat.view') }, choice('answer'), choice('wire'));
  const element = h('div', { class: 'chat', 'data-view': 'answer', 'data-test': 'page-chat' },
    h('h1', { class: 'unseen' }, () => t('chat.title')),
    h('div', { class: 'chat-bar' }, views),
    h('div', { class: 'talk' }, hero, list, more, bar.element),
    wire.element);

  /** @param {'answer' | 'wire'} name */
  function view(name) {
    element.dataset.view = name;
    for (const button of views.children) button.setAttribute('aria-pressed', String(button.getAttribute('data-view') === name));
  }

  function begin() {
    running?.stop();
    turns = [];
    list.replaceChildren();
    wire.clear();
    hero.hidden = false;
    more.hidden = restart.hidden = true;
    view('answer');
    bar.focus();
  }

  /** Previous messages of a route, for its next request. @param {string} route */
  function history(route) {
    const own = turns.filter((one) => one.chatRequest.route === route && one.text());
    const messages = own.flatMap((one) => [{ role: 'user', content: one.chatRequest.question }, { role: 'assistant', content: one.text() }]);
    return { messages, session: /** @type {string | undefined} */ (own.at(-1)?.record()?.conversationId ?? undefined) };
  }

  /** @param {ChatRequest} chatRequest */
  function send(chatRequest) {
    if (running) return;
    const own = turn(chatRequest, {
      again: () => send(chatRequest),
      wire: (log) => {
        wire.show(log);
        view('wire');
        wire.element.scrollIntoView({ block: 'nearest' });
      },
      ended: () => {
        if (running === own) running = null;
        bar.busy(false);
        more.hidden = more.childElementCount === 0;
      },
    });
    running = own;
    turns.push(own);
    hero.hidden = true;
    more.hidden = true;
    restart.hidden = false;
    list.append(own.element);
    wire.add(own.log);
    bar.busy(true);
    // The clicked question is hidden now. Move the keyboard focus to the new turn.
    if (!document.activeElement || document.activeElement === document.body || hero.contains(document.activeElement) || more.contains(document.activeElement)) {
      own.element.querySelector('h2')?.focus({ preventScroll: true });
    }
    if (turns.length > 1) own.element.scrollIntoView({ block: 'start' });
    else scrollTo(0, 0);
  }

  /** @param {Route} route @param {string} question @param {boolean} [small] */
  const offer = (route, question, small) => h('button', { type: 'button', class: small ? 'small' : 'offer', 'data-test': 'demo-question', 'data-route': route.name, onclick: () => bar.play(route, question) },
    h('span', { class: 'offer-words' }, question),
    !small && h('span', { class: 'note' }, route.name));

  function offerQuestions() {
    const rounds = [0, 1, 2, 3].flatMap((at) => routes.flatMap((route) => (route.models.length && route.questions?.[at] ? [{ route, question: route.questions[at] }] : [])));
    // Questions in the user's language first.
    const otherLanguage = (/** @type {{ question: string }} */ { question }) => Number(/\p{Script=Han}/u.test(question) !== (lang() === 'zh'));
    const offered = rounds.toSorted((a, b) => otherLanguage(a) - otherLanguage(b)).slice(0, OFFERED);
    if (offered[0]) bar.choose(offered[0].route);
    if (offered.length === 0) return;
    fill(offers, h('h2', {}, () => t('chat.play')), h('div', { class: 'cards' }, ...offered.map(({ route, question }) => offer(route, question))));
    fill(more, h('span', { class: 'note' }, () => t('chat.more')), ...offered.map(({ route, question }) => offer(route, question, true)));
  }

  async function load() {
    trouble.hidden = true;
    try {
      const known = await json('/console/routes');
      routes = known.routes ?? [];
      bar.routes(routes);
      offerQuestions();
      if (routes.length === 0) {
        fill(trouble, h('p', {}, () => t('chat.nothing')));
        trouble.classList.remove('bad');
        trouble.hidden = false;
      }
    } catch (error) {
      const problem = /** @type {import('./api.js').ApiError} */ (error);
      trouble.classList.add('bad');
      fill(trouble, h('p', { class: 'headline' }, problem.message), h('p', {}, () => problem.advice?.() ?? ''), h('button', { type: 'button', onclick: load }, () => t('retry')));
      trouble.hidden = false;
    }
  }
  load();

  return { element, title: () => t('chat.title') };
}
