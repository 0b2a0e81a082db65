// The form of the chat page: route, output options, and the question or raw request.
import { h, icon, localized } from './dom.js';
import { t } from './i18n.js';

/** @typedef {import('./chat.js').Route} Route */
/** @typedef {import('./turn.js').ChatRequest} ChatRequest */

/**
 * @param {string} id
 * @param {() => string} label
 * @param {HTMLElement} control
 * @param {(() => string) | null} [note]
 */
function field(id, label, control, note = null) {
  control.id = id;
  return h('div', { class: 'field' }, h('label', { for: id }, label), control, note && h('span', { class: 'note' }, note));
}

/** @param {string} test @param {Array<[string, () => string]>} options */
function select(test, options) {
  return h('select', { 'data-test': test }, ...options.map(([value, label]) => h('option', { value }, label)));
}

/** @param {string} text @returns {() => string} */
const as = (text) => () => text;

/**
 * @param {{ send: (chatRequest: ChatRequest) => void, stop: () => void, history: (route: string) => { messages: object[], session?: string } }} to
 */
export function composer({ send, stop, history }) {
  /** @type {Route[]} */ let routes = [];
  let busy = false;

  const route = h('select', { 'data-test': 'route', onchange: chosen }, h('option', {}, '…'));
  const current = () => routes.find((one) => one.name === route.value);
  const asksRaw = () => (current()?.models.length ?? 1) === 0;
  const profile = select('profile', [['native', () => t('chat.native')], ['openai', as('openai')], ['ai-sdk', as('ai-sdk')], ['open-webui', as('open-webui')]]);
  const inject = select('inject', [['live', () => t('chat.inject.live')], ['final', () => t('chat.inject.final')]]);
  const markers = select('markers', [['keep', () => t('chat.keep')], ['link', as('link')], ['sup', as('sup')], ['footnote', as('footnote')], ['strip', as('strip')]]);
  const auth = h('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', placeholder: 'Bearer …', 'data-test': 'upstream-auth' });
  const input = h('textarea', { id: 'question', rows: '1', 'data-test': 'question', onkeydown: pressed, oninput: grown });
  const path = h('input', { type: 'text', spellcheck: 'false', autocapitalize: 'off', 'data-test': 'raw-path', value: '/' });
  const body = h('textarea', { rows: '4', spellcheck: 'false', class: 'mono', 'data-test': 'raw-body', 'aria-describedby': 'raw-error', oninput: checked });
  body.value = '{}';
  const prefix = h('span', { class: 'prefix mono' });
  const parseError = h('p', { id: 'raw-error', class: 'headline bad', hidden: true });
  const label = h('label', { class: 'unseen', for: 'question' }, () => t('chat.ask.label'));
  const raw = h('div', { class: 'raw', hidden: true },
    h('p', { class: 'note' }, () => t('chat.raw')),
    field('raw-path', () => t('chat.raw.path'), path),
    field('raw-body', () => t('chat.raw.body'), body), parseError);
  const place = h('div', { class: 'row' });
  path.replaceWith(place);
  place.append(prefix, path);
  const foot = h('div', { class: 'row end' });
  raw.append(foot);
  const go = h('button', { type: 'submit', class: 'main round', 'data-test': 'ask', 'aria-label': () => t(asksRaw() ? 'chat.raw.send' : 'chat.ask'), title: () => t('chat.ask') }, icon('send'));
  const halt = h('button', { type: 'button', class: 'main round stop', hidden: true, 'data-test': 'stop', 'aria-label': () => t('chat.stop'), title: () => t('chat.stop'), onclick: stop }, icon('stop'));
  const line = h('div', { class: 'ask-row' }, label, input, go, halt);
  const options = h('details', { class: 'options', 'data-test': 'options' },
    h('summary', {}, () => t('chat.options')),
    h('div', { class: 'fields' },
      field('profile', () => t('chat.profile'), profile, () => t('chat.profile.note')),
      field('inject', () => t('chat.inject'), inject),
      field('markers', () => t('chat.markers'), markers),
      field('auth', () => t('chat.auth'), auth, () => t('chat.auth.note'))));
  const element = h('form', { class: 'composer', 'data-test': 'composer', onsubmit: (/** @type {Event} */ event) => {
    event.preventDefault();
    submit();
  } },
  raw,
  line,
  h('div', { class: 'choice-row' }, h('label', { class: 'route' }, h('span', {}, () => t('chat.route')), route), options));

  localized(input, hint);

  function chosen() {
    const own = current();
    raw.hidden = !asksRaw();
    line.hidden = asksRaw();
    (asksRaw() ? foot : line).append(go, halt);
    prefix.textContent = own && own.prefix !== '/' ? own.prefix : '';
    hint();
    go.setAttribute('aria-label', t(asksRaw() ? 'chat.raw.send' : 'chat.ask'));
  }

  function hint() {
    const own = current();
    input.placeholder = own ? t('chat.ask.placeholder', { route: own.name }) : '';
  }

  function grown() {
    input.style.height = 'auto';
    input.style.height = `${Math.min(input.scrollHeight, 200)}px`;
  }

  function checked() {
    try {
      JSON.parse(body.value);
      parseError.hidden = true;
      return true;
    } catch (error) {
      parseError.textContent = t('chat.raw.bad', { why: /** @type {Error} */ (error).message });
      parseError.hidden = false;
      return false;
    }
  }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    // While an input method composes text (Chinese, for example), Enter confirms the composition.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  }

  function headers() {
    /** @type {Record<string, string>} */
    const own = { 'content-type': 'application/json', 'x-citetap-profile': profile.value, 'x-citetap-inject': inject.value, 'x-citetap-markers': markers.value };
    if (auth.value) own.authorization = auth.value;
    return own;
  }

  function submit() {
    const own = current();
    if (busy || !own) return;
    if (asksRaw()) {
      if (!checked()) return;
      const below = path.value.startsWith('/') ? path.value : `/${path.value}`;
      const full = `${own.prefix === '/' ? '' : own.prefix}${below}`;
      send({ route: own.name, question: `POST ${full}`, path: full, body: body.value, headers: headers() });
      return;
    }
    const question = input.value.trim();
    if (question === '') return input.focus();
    input.value = '';
    grown();
    const { messages, session } = history(own.name);
    const request = { model: own.models[0], stream: true, messages: [...messages, { role: 'user', content: question }] };
    const more = /** @type {Record<string, string>} */ (session ? { 'x-citetap-session': session } : {});
    send({ route: own.name, question: question, path: '/v1/chat/completions', body: JSON.stringify(request), headers: { ...headers(), ...more } });
  }

  return {
    element,
    /** @param {HTMLElement} more shown next to the options */
    extra: (more) => element.lastElementChild?.append(more),
    focus: () => input.focus(),
    /** @param {Route[]} known */
    routes(known) {
      routes = known;
      route.replaceChildren(...known.map((one) => h('option', { value: one.name }, one.name)));
      chosen();
    },
    /** @param {Route} own */
    choose(own) {
      route.value = own.name;
      chosen();
    },
    /** @param {boolean} now */
    busy(now) {
      busy = now;
      const had = document.activeElement === (now ? go : halt);
      go.hidden = now;
      halt.hidden = !now;
      if (had) (now ? halt : input).focus();
    },
    /** @param {Route} own @param {string} question */
    play(own, question) {
      if (busy) return;
      route.value = own.name;
      chosen();
      input.value = question;
      submit();
    },
  };
}
