/** API: types.d.ts. Untrusted text is only set as text. @import * as T from './types.d.ts' */

/** @type {typeof T.readStream} */
export async function* readStream(response, { onFrame } = {}) {
  const nonce = response.headers.get('x-citetap-nonce');
  const streamed = /^text\/event-stream/i.test(response.headers.get('content-type') ?? '');
  const state = { finished: false, failed: !response.ok, known: new Set() };
  try {
    const raw = streamed ? '' : await response.text();
    const whole = [{ raw, event: '', data: raw[0] === '{' ? raw : `{"error":"HTTP ${response.status}"}` }];
    for await (const frame of streamed ? frames(response.body) : whole) {
      const json = parsed(frame.data);
      const record = [json?.citetap, json?.data, json?.citations, json].find((one) => one?.type === 'citations' && one.citations);
      frame.ours = record ? !nonce || record.nonce === nonce : /^: ?citetap/.test(frame.raw);
      onFrame?.(frame);
      if (record && frame.ours) yield { type: 'citations', record, verified: !!nonce };
      if (frame.data?.trim() === '[DONE]') state.finished = true;
      else if (json && !(frame.ours && streamed)) yield* parse(frame.event, json, state);
    }
  } catch (error) {
    state.finished = false;
    if (error.name !== 'AbortError' && !state.failed) yield { type: 'error', message: 'the stream broke off', code: 'cut' };
  }
  yield { type: 'end', complete: state.finished && !state.failed };
}

/** @returns {AsyncGenerator<any>} */
async function* frames(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let buffer = '', ended = false; !ended; ) {
    const { done, value } = await reader.read();
    ended = done;
    const parts = (buffer + (done ? '\n\n' : value)).split(/(?:\r\n|\n|\r(?!\n)){2}/);
    buffer = parts.pop() ?? '';
    for (const raw of parts.map((part) => part.replace(/^\n/, '')).filter(Boolean)) {
      const frame = { raw, event: '' };
      for (const line of raw.split(/\r\n|\n|\r/)) {
        const { 1: name, 2: text } = /** @type {any} */ (/^([^:]*):? ?([^]*)/.exec(line));
        frame[name] = frame[name] && name === 'data' ? `${frame.data}\n${text}` : text;
      }
      yield frame;
    }
  }
}

function parsed(value) {
  try {
    return typeof value === 'string' ? JSON.parse(value) : value;
  } catch {
    return undefined;
  }
}

const words = (...values) => values.find((value) => typeof value === 'string' && value) ?? '';

/** Parses a frame of any dialect. @returns {T.StreamEvent[]} */
function parse(event, json, state) {
  const out = [];
  const text = (text, thinking = false) => {
    if (typeof text !== 'string' || !text) return;
    state.text ||= !thinking;
    out.push({ type: thinking ? 'thinking' : 'text', text });
  };
  const stage = (stage) => {
    const key = JSON.stringify(stage);
    if (!state.known.has(key)) out.push({ type: 'stage', ...stage });
    state.known.add(key);
  };
  const fault = (error) => {
    state.failed = true;
    const code = error.code ?? error.error_code ?? error.status;
    const message = words(error, error.detail, error.message, error.msg, error.error_msg, error.errorText);
    out.push({ type: 'error', message, code: code && `${code}` });
  };
  const search = (content) => {
    const { queries, results, summary } = parsed(content?.search_query_result_block ?? content?.search_block) ?? content ?? {};
    if (queries || results) stage({ name: 'search', message: summary, queries: queries?.map((one) => words(one, one?.query)), count: results?.length });
  };
  const blocks = (holder) => {
    const value = parsed(holder);
    const list = parsed(value?.content_block ?? value);
    if (!Array.isArray(list)) return value?.content && blocks(value.content);
    for (const { block_type, block_id, parent_id, is_finish, content: inside } of list) {
      const content = parsed(inside);
      if (block_type === 10040) {
        state.thinking = !state.known.has(block_id) && !is_finish;
        state.known.add(block_id);
      } else if (block_type === 10000 && content?.text_block) {
        state.thinking = state.known.has(parent_id);
        text(content.text_block.text, state.thinking);
      } else search(content);
    }
  };
  const message = ({ content, reasoning_content, reasoning, reasoning_text }) => {
    text(words(reasoning_content, reasoning, reasoning_text), true);
    for (const part of [content].flat()) text(part?.text ?? part);
  };

  if (json.event?.type === 'status') {
    const { description, queries } = json.event.data;
    stage({ name: queries ? 'search' : 'status', message: description, queries });
  } else if (/error$/i.test(event) || json.event_type === 2005) fault(parsed(json.event_data) ?? json.error ?? json);
  else if (json.error) fault(json.error);
  else if (Array.isArray(json.choices)) {
    const { delta, finish_reason, message: whole } = json.choices.find((one) => !one?.index) ?? {};
    if (delta && delta.role !== 'tool') message(delta);
    const ends = /^chat\.completion(\.done)?$/.test(json.object) || (finish_reason && finish_reason !== 'null');
    if (whole && !state.text && (ends || !delta)) message(whole);
    if (finish_reason === 'error') fault({});
    state.finished ||= !!ends;
  } else if (json.candidates || json.promptFeedback) {
    const { content, finishReason } = json.candidates?.find((one) => !+(one?.index ?? 0)) ?? {};
    for (const part of content?.parts ?? []) text(part?.text, part?.thought === true);
    state.finished ||= !!(finishReason || json.promptFeedback);
  } else if (/^(content_block|message)_/.test(json.type)) {
    const part = json.delta ?? json.content_block;
    text(part?.thinking, true);
    if (/^text/.test(part?.type)) text(part.text);
    state.finished ||= !!(json.type === 'message_stop' || part?.stop_reason);
  } else if (/^response\./.test(json.type)) {
    if (json.type === 'response.failed') fault(json.response?.error ?? {});
    const [, kind, step] = /\.(\w*text|refusal|reasoning)\.(\w+)$/.exec(json.type) ?? [];
    const part = `${kind} ${json.item_id} ${json.content_index}`;
    // A text without deltas comes in its last event.
    if (kind === 'reasoning') text(json.thought, true);
    else if (step === 'delta' || (kind === 'output_text' && !state.known.has(part))) text(json.delta ?? json.text, /reasoning/.test(kind));
    state.known.add(part);
    state.finished ||= /\.(completed|incomplete)$/.test(json.type) && !!json.response;
  } else if (json.processes || 'delta_content' in json || json.data?.content) {
    const { stage: name, message, delta_content, detail } = json.processes ?? {};
    if (name === 'thinking') text(delta_content, true);
    else if (name) stage({ name, message, detail: words(detail?.tool_name, detail?.query, detail?.space_name), count: detail?.resource_count ?? detail?.doc_count, progress: detail?.progress });
    text(json.delta_content);
    if (json.data || json.is_stop || event === 'finish') {
      if (!state.text) text(json.data?.content ?? json.content);
      state.finished = true;
    }
  } else if ('event_type' in json) {
    const inner = parsed(json.event_data);
    const { content_type, content: packed, content_block } = parsed(inner?.message) ?? {};
    const content = parsed(packed);
    blocks(content_block);
    if (content_type === 2001 || content_type === 10000) text(content?.text);
    else if (content_type === 2008) text(words(content?.think, content?.text), true);
    else search(content);
    state.finished ||= json.event_type === 2003 || !!inner?.is_finish;
  } else if (event === 'SSE_REPLY_END') state.finished = true;
  else if (event === 'CHUNK_DELTA') text(json.text, state.thinking);
  else if (/-delta$/.test(json.type)) text(json.delta, json.type[0] === 'r');
  else if (json.type === 'data-status') stage({ name: json.data.stage ?? 'search', ...json.data });
  else if (json.type === 'error') fault(json);
  else if (json.type === 'finish') state.finished = true;
  else if (json.detail || (json.code && words(json.message, json.msg))) fault(json);
  // Skip the user's own messages.
  else if (event !== 'FULL_MSG_NOTIFY' && json.meta?.user_type !== 1) {
    blocks(json.content);
    blocks(json.message);
    for (const { patch_object, patch_value } of parsed(json.patch_op) ?? []) {
      const value = parsed(patch_value);
      if (patch_object === 102) text(parsed(value?.content)?.text ?? value?.content);
      else blocks(value);
    }
  }
  return out;
}

/** @type {typeof T.withCitationTags} */
export function withCitationTags(text, citations) {
  if (!text || !citations.length) return text;
  return text.replace(/(?<!\])\[(\d{1,2})\](?!\()/g, (marker, digits) => {
    const id = parseInt(digits, 10);
    const { url, title, content } = citations[id - 1] ?? {};
    if (!citations[id - 1]) return marker;
    const data = JSON.stringify({ id, url, title: title || '', content: content?.substring(0, 200) || '' });
    const attribute = data.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
    return `[<sup data-citation='${attribute}'>${id}</sup>](${url?.startsWith('http') ? url : ''})`;
  });
}

const linkable = (url) => (/^https?:\/\//i.test(url ?? '') ? url : '');
const site = ({ siteName, hostname, url }) => siteName || hostname || (linkable(url) && URL.parse(url)?.hostname) || '';
const heading = (citation) => citation.title || citation.url || site(citation) || `[${citation.number}]`;
const joined = (by, ...parts) => parts.filter(Boolean).join(by);
const about = (citation) => joined(' · ', site(citation), citation.publishedAt?.slice(0, 10));
const line = (citation) => joined(' ', `${heading(citation)}.`, about(citation), linkable(citation.url));
/** @param {T.CitationRecord | null} record */
const kept = (record) => (record?.citations ?? []).filter(({ status }) => !status || status === 'ok');

const WORDS = {
  source: ['Source', '来源'], sources: ['Sources', '参考资料'], consulted: ['Consulted, not cited', '参考但未引用'], searched: ['Searched for', '搜索'],
  open: ['Open', '打开'], copy: ['Copy', '复制'], all: ['Copy all', '复制全部'], copied: ['Copied', '已复制'], failed: ['Could not copy', '复制失败'],
  plain: ['Plain text', '纯文本'], close: ['Close', '关闭'], previous: ['Previous', '上一个'], next: ['Next', '下一个'], scores: ['Scores', '评分'],
  relevance: ['relevance', '相关'], freshness: ['freshness', '时效'], authority: ['authority', '权威'], final: ['score', '总分'], none: ['No sources', '没有来源'],
  supplemental: ['found beside the answer', '在回答之外搜索到'], unknown: ['Could not load sources', '无法加载来源'],
  done: ['Answer complete. Sources:', '回答完毕，来源数：'], cut: ['The answer broke off.', '回答中断了。'],
};

function wordsFor(node) {
  let at = node;
  while (at && !at.lang) at = at.parentElement ?? at.getRootNode().host;
  const zh = Number(/^zh/i.test(at?.lang ?? navigator.language));
  return (key) => WORDS[key]?.[zh];
}

/** Creates an element; its class is its part too. @returns {any} */
function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element[key] = value;
    else if (value || value === 0) element.setAttribute(key, value);
    if (key === 'class') element.part = value.replace('cite-', '');
  }
  element.append(...children.flat().filter(Boolean));
  return element;
}

function sheet(css) {
  const made = new CSSStyleSheet();
  made.replaceSync(css);
  return made;
}

const LINK = { target: '_blank', rel: 'noopener noreferrer nofollow', referrerpolicy: 'no-referrer' };

const link = (citation, attributes, text) => {
  const url = linkable(citation.url);
  return url ? h('a', { ...attributes, href: url, ...LINK }, text) : h('span', attributes, text);
};

function icon(citation, icons) {
  const letter = h('span', { class: 'icon', 'aria-hidden': 'true' }, (site(citation) || heading(citation))[0].toUpperCase());
  const src = icons && linkable(citation.iconUrl);
  if (src) h('img', { alt: '', referrerpolicy: 'no-referrer', src, onload: ({ target }) => letter.replaceChildren(target) });
  return letter;
}

function copying(w, label, text) {
  const onclick = async ({ target }) => {
    try {
      await navigator.clipboard.writeText(await text());
      target.textContent = w('copied');
    } catch {
      target.textContent = w('failed');
    }
    setTimeout(() => (target.textContent = label), 1500);
  };
  return h('button', { class: 'button', onclick }, label);
}

/** Updates in place: keeps focus, selection and open card. */
function become(old, fresh) {
  for (const { name } of [...old.attributes]) if (!/^aria-[ec]/.test(name) && !fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) old.setAttribute(name, value);
  morph(old, fresh);
}

function morph(from, to) {
  const nodes = [...to.childNodes];
  let old = from.firstChild;
  for (const node of nodes) {
    const next = old?.nextSibling;
    if (!old) from.append(node);
    else if (old.localName && old.localName === node.localName) old.isEqualNode(node) || become(old, node);
    else old.replaceWith(node);
    old = next;
  }
  while (from.childNodes.length > nodes.length) from.lastChild.remove();
}

const numbersOf = (chip) => chip?.dataset.cite.split(' ').map(Number) ?? [];

/** Without sources: a placeholder. */
function newChip(numbers, citations, w, byName) {
  const [first] = citations;
  const label = ((byName && first && site(first)) || numbers[0]) + (numbers[1] ? ` +${numbers.length - 1}` : '');
  const known = first && {
    ...(linkable(first.url) ? { href: first.url, ...LINK } : { role: 'button', tabindex: 0 }),
    'aria-haspopup': 'dialog',
    'aria-label': `${w('source')} ${label}: ${citations.map((one) => joined(', ', heading(one), site(one))).join('; ')}`,
  };
  return h('a', { class: first ? 'cite-chip' : 'cite-chip waits', 'data-cite': numbers.join(' '), ...known }, h('span', { 'aria-hidden': 'true' }, label));
}

/** Adjacent markers become one chip; a word joiner prevents a line break before it. */
function chips(root, make) {
  const groups = [];
  let last;
  for (const sup of root.querySelectorAll('sup[data-citation]')) {
    const parent = sup.parentElement;
    const holder = parent?.localName === 'a' && parent.textContent === sup.textContent ? parent : sup;
    const data = parsed(sup.dataset.citation) ?? {};
    const url = linkable(data.url) || linkable(parent?.href);
    const one = { holder, number: Number(data.id ?? sup.textContent), url, title: words(data.title), content: words(data.content) };
    let before = holder.previousSibling;
    if (before && !before.nodeValue?.trim() && before.nodeType === 3) before = before.previousSibling;
    if (before && before === last?.at(-1).holder) last.push(one);
    else groups.push((last = [one]));
  }
  for (const group of groups) {
    group[0].holder.before('\u2060', make(group, group.map(({ number }) => number)));
    for (const { holder } of group) holder.remove();
  }
}

/** @type {typeof T.upgrade} */
export function upgrade(root = document, { icons = false } = {}) {
  const scope = /** @type {any} */ (root.getRootNode());
  if (!scope.adoptedStyleSheets.includes(CHIP)) scope.adoptedStyleSheets.push(CHIP);
  const w = wordsFor(root === document ? document.documentElement : root);
  chips(root, (group, numbers) => {
    const chip = newChip(numbers, group, w);
    chip.cites = group;
    return chip;
  });
  hover(scope, ({ cites }) => cites ?? [], () => icons);
}

function hover(root, find, icons) {
  if (root.cites) return;
  root.cites = true;
  let timer;
  let touch = false;
  let card;
  const chipAt = (event) => {
    const chip = event.composedPath()[0].closest?.('.cite-chip');
    return chip && find(chip).length ? chip : null;
  };
  const open = (chip) => {
    clearTimeout(timer);
    if (!card) {
      card = h('cite-card', { class: 'card', exportparts: 'icon, title, site, snippet, button' });
      card.onpointerenter = () => clearTimeout(timer);
      card.onpointerleave = leave;
    }
    (root.body ?? root).append(card);
    card.show(chip, find(chip), icons(), touch);
  };
  const leave = ({ pointerType }) => {
    if (touch || pointerType === 'touch') return;
    clearTimeout(timer);
    timer = setTimeout(() => card?.matches(':focus-within') || card?.chip?.matches(':focus-visible') || card?.hide(), 300);
  };
  const on = (name, listener) => root.addEventListener(name, listener);
  on('pointerdown', ({ pointerType }) => (touch = pointerType === 'touch'));
  on('pointerover', (event) => {
    const chip = chipAt(event);
    if (!chip || event.pointerType === 'touch') return;
    touch = false;
    clearTimeout(timer);
    if (card?.chip !== chip) timer = setTimeout(open, 150, chip);
  });
  on('pointerout', (event) => chipAt(event) && leave(event));
  on('focusin', (event) => {
    const chip = chipAt(event);
    if (chip && !touch && card?.chip !== chip && chip.matches(':focus-visible')) open(chip);
  });
  on('focusout', leave);
  on('click', (event) => {
    const chip = chipAt(event);
    // The first tap opens the card, the second follows the link.
    if (!chip || (touch ? card?.chip === chip : chip.href)) return;
    event.preventDefault();
    open(chip);
  });
  on('keydown', (event) => {
    const chip = chipAt(event);
    touch = false;
    const enters = event.key === 'ArrowDown' || (card?.chip === chip && event.key === 'Tab' && !event.shiftKey) || (/^(Enter| )$/.test(event.key) && !chip?.href);
    if (!chip || !enters) return;
    event.preventDefault();
    if (card?.chip !== chip) open(chip);
    card.enter();
  });
}

class Card extends HTMLElement {
  /** @type {any} */ chip = null;
  /** @type {any} */ root = this.attachShadow({ mode: 'open' });
  #listeners = {
    scroll: () => this.#place(),
    resize: () => this.#place(),
    pointerdown: (event) => [this, this.chip].some((one) => event.composedPath().includes(one)) || this.hide(),
    keydown: (event) => this.#press(event),
  };

  constructor() {
    super();
    this.root.adoptedStyleSheets = [BASE, CARD];
  }

  show(chip, citations, icons, touch) {
    this.hide();
    Object.assign(this, { chip, popover: 'manual', id: 'cite-card', role: 'dialog', className: touch ? 'card sheet' : 'card' });
    chip.setAttribute('aria-expanded', 'true');
    chip.setAttribute('aria-controls', this.id);
    this.#fill(citations, 0, icons);
    this.showPopover();
    this.#place();
    this.#listen(addEventListener);
  }

  hide() {
    if (!this.chip) return;
    this.chip.setAttribute('aria-expanded', 'false');
    this.chip.removeAttribute('aria-controls');
    this.chip = null;
    if (this.isConnected) this.hidePopover();
    this.#listen(removeEventListener);
  }

  #listen(how) {
    for (const [name, listener] of Object.entries(this.#listeners)) how(name, listener, true);
  }

  disconnectedCallback() {
    this.hide();
  }

  enter() {
    this.root.querySelector('a, button').focus();
  }

  #fill(citations, at, icons) {
    const w = wordsFor(this.chip);
    const citation = citations[at];
    this.ariaLabel = heading(citation);
    const turn = (by, label, sign) => {
      const onclick = () => {
        this.#fill(citations, (at + by + citations.length) % citations.length, icons);
        this.#place();
        this.root.querySelector(`[aria-label="${label}"]`).focus();
      };
      return h('button', { 'aria-label': label, onclick }, sign);
    };
    this.root.replaceChildren(
      h('div', { class: 'head' }, icon(citation, icons), h('div', {}, link(citation, { class: 'title' }, heading(citation)), h('div', { class: 'site' }, joined(' · ', `[${citation.number}]`, about(citation)))),
        this.matches('.sheet') && h('button', { class: 'close', 'aria-label': w('close'), onclick: () => this.#back() }, '×')),
      citation.content ? h('div', { class: 'snippet' }, citation.content) : '',
      h('div', { class: 'foot' }, linkable(citation.url) && link(citation, { class: 'button' }, w('open')), copying(w, w('copy'), () => line(citation)),
        citations[1] && h('span', { class: 'turn' }, turn(-1, w('previous'), '‹'), `${at + 1}/${citations.length}`, turn(1, w('next'), '›'))),
    );
  }

  #place() {
    if (!this.chip.isConnected) return this.hide();
    const { left, top, bottom } = this.chip.getBoundingClientRect();
    const { clientWidth, clientHeight } = document.documentElement;
    const above = top - 8 - this.offsetHeight;
    this.style.left = `${Math.max(8, Math.min(left - 16, clientWidth - this.offsetWidth - 8))}px`;
    this.style.top = `${bottom + 8 + this.offsetHeight > clientHeight && above > 0 ? above : bottom + 8}px`;
  }

  /** Hides after focusing the chip, because focus opens the card. */
  #back() {
    const { chip } = this;
    if (this.matches(':focus-within')) chip.focus();
    this.hide();
  }

  #press(event) {
    const stops = this.root.querySelectorAll('a, button');
    const leaves = event.key === 'Tab' && this.root.activeElement === stops[event.shiftKey ? 0 : stops.length - 1];
    if (event.key === 'Escape') event.stopPropagation();
    else if (!leaves) return;
      else if (event.shiftKey) event.preventDefault();
    this.#back();
  }
}

class Cited extends HTMLElement {
  headers = {};
  /** @type {T.CitationRecord | null} */ given = null;
  /** @type {any} */ root = this.attachShadow({ mode: 'open' });

  constructor(...sheets) {
    super();
    this.root.adoptedStyleSheets = [BASE, ...sheets];
  }

  get record() {
    return this.given;
  }

  set record(record) {
    this.given = record;
    this.shown();
  }

  shown() {}

  async call(path, init = {}) {
    const base = this.getAttribute('base')?.replace(/\/?$/, '/') ?? import.meta.url;
    const response = await fetch(new URL(path, new URL(base, document.baseURI)), { ...init, headers: this.headers });
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    return response;
  }
}

export class CiteList extends Cited {
  static observedAttributes = ['message'];
  #scored = false;

  constructor() {
    super(LIST);
  }

  attributeChangedCallback() {
    queueMicrotask(() => this.load());
  }

  connectedCallback() {
    this.shown();
  }

  #get(id, provider, query) {
    return this.call(`citations/${encodeURIComponent(id)}?${query}${provider ? `&provider=${encodeURIComponent(provider)}` : ''}`);
  }

  async load() {
    const message = this.getAttribute('message');
    const record = await this.#get(message, this.getAttribute('provider'), 'format=json&wait=30').then((answer) => answer.json(), () => null);
    if (message !== this.getAttribute('message')) return;
    this.record = record;
    if (!record) this.root.replaceChildren(h('p', { class: 'note', role: 'status' }, wordsFor(this)('unknown')));
  }

  mark(citations) {
    for (const row of this.root.querySelectorAll('li')) row.classList.toggle('marked', citations.some(({ number }) => row.value === number));
  }

  shown() {
    const record = this.given;
    if (!record || !this.isConnected) return;
    const w = wordsFor(this);
    const all = kept(record);
    const cited = all.filter((citation) => citation.cited);
    const others = all.filter((citation) => !citation.cited);
    const score = () => {
      this.#scored = !this.#scored;
      this.shown();
      this.root.querySelector('[aria-pressed]').focus();
    };
    const menu = h('details', {
      onfocusout: ({ relatedTarget }) => menu.contains(relatedTarget) || (menu.open = false),
      onkeydown: ({ key }) => key === 'Escape' && (menu.open = false),
    }, h('summary', { class: 'button' }, w('all')), h('div', {},
      copying(w, 'Markdown', () => all.map((one) => `${one.number}. [${heading(one).replace(/[\\[\]]/g, '\\$&')}](${linkable(one.url) && `<${one.url}>`}) ${about(one)}`).join('\n')),
      copying(w, w('plain'), () => all.map((one) => `[${one.number}] ${line(one)}`).join('\n')),
      record.stored && copying(w, 'BibTeX', async () => (await this.#get(record.messageId, record.provider, 'format=bibtex')).text()),
      copying(w, 'JSON', () => JSON.stringify(record, null, 2)),
    ));
    this.root.replaceChildren(all.length ? h('div', { class: 'list', role: 'group', 'aria-label': w('sources') },
      h('div', { class: 'bar' }, h('strong', {}, w('sources')), h('span', { class: 'count' }, `${all.length}`),
        all[0].scores && h('button', { class: 'button', 'aria-pressed': `${this.#scored}`, onclick: score }, w('scores')), menu),
      record.queries?.length && h('p', { class: 'note' }, `${w('searched')}: `, record.queries.join(' · ')),
      this.#rows(w, cited),
      cited.length && others.length && h('p', { class: 'note' }, `${w('consulted')} (${others.length})`),
      this.#rows(w, others),
    ) : record.complete ? h('p', { class: 'note' }, w('none')) : '');
  }

  #rows(w, citations) {
    return citations.length && h('ol', {}, citations.map((citation) => h('li', { value: citation.number, class: 'source' },
      h('span', { class: 'number' }, `${citation.number}`),
      icon(citation, this.hasAttribute('icons')),
      h('div', {},
        link(citation, { class: 'title' }, heading(citation)),
        h('div', { class: 'site' }, joined(' · ', about(citation), w(citation.origin))),
        citation.content ? h('div', { class: 'snippet' }, citation.content) : '',
        this.#scored && citation.scores && h('div', { class: 'site' }, ['final', 'relevance', 'freshness', 'authority'].map((name) => `${w(name)} ${citation.scores[name].toFixed(2)}`).join(' · ')),
      ))));
  }
}

export class CiteAnswer extends Cited {
  /** @type {any} */ request;
  #text = '';
  /** Start of the last, incomplete block. */
  #from = 0;
  #phase = '';
  #rendering;
  #dirty = false;
  #plainly = false;
  #abort = new AbortController();
  #byNumber = new Map();
  #settled = h('div');
  #open = h('div');
  #body = h('div', { class: 'answer' }, this.#settled, this.#open);
  #error = h('div', { class: 'error', role: 'alert' });
  #status = h('p', { class: 'hidden', role: 'status' });
  #list = h('cite-list', { class: 'sources', exportparts: 'list, source, icon, title, site, snippet, button' });

  constructor() {
    super(CHIP, ANSWER);
    this.root.append(this.#body, this.#error, this.#status, this.#list);
    hover(this.root, (chip) => this.#find(numbersOf(chip)), () => this.hasAttribute('icons'));
    const pair = ({ target }) => this.#list.mark(this.#find(numbersOf(target.closest('.cite-chip'))));
    for (const name of ['pointerover', 'focusin', 'focusout', 'pointerleave']) this.#body.addEventListener(name, pair);
    this.root.addEventListener('copy', (event) => this.#copied(event));
  }

  connectedCallback() {
    if (this.hasAttribute('src')) queueMicrotask(() => this.#phase || this.start());
    this.#render();
  }

  disconnectedCallback() {
    this.stop();
  }

  get text() {
    return this.#text;
  }

  set text(text) {
    this.#reset();
    this.#text = text;
    this.finish();
  }

  shown() {
    this.#byNumber.clear();
    for (const one of kept(this.given)) for (const alias of one.aliases ?? []) this.#byNumber.set(alias, one);
    for (const one of kept(this.given)) this.#byNumber.set(one.number, one);
    for (const chip of this.#body.querySelectorAll('.cite-chip')) become(chip, this.#chip(numbersOf(chip)));
    for (const name of ['base', 'icons', 'lang']) if (this.hasAttribute(name)) this.#list.setAttribute(name, this.getAttribute(name));
    this.#list.headers = this.headers;
    if (!this.hasAttribute('nolist')) this.#list.record = this.given;
    if (this.#phase === 'done') this.finish();
  }

  append(delta) {
    if (this.#phase !== 'streaming') this.#begin();
    this.#text += delta;
    this.#render();
  }

  finish() {
    this.#phase = 'done';
    this.#body.ariaBusy = null;
    this.#status.textContent = `${wordsFor(this)('done')} ${kept(this.given).length}`;
    return this.#render();
  }

  async start() {
    this.stop();
    const { signal } = (this.#abort = new AbortController());
    const request = this.request ?? parsed(this.getAttribute('request'));
    const init = !request || request.method || request.body ? request : { method: 'POST', body: JSON.stringify(request) };
    const headers = { 'content-type': 'application/json', 'x-citetap-inject': 'live', ...this.headers, ...init?.headers };
    try {
      await this.stream(await fetch(this.getAttribute('src') ?? '', { ...init, headers, signal }));
    } catch (error) {
      if (!signal.aborted) this.#tell({ type: 'error', message: error.message, code: 'network' });
      this.#tell({ type: 'end', complete: false });
    }
  }

  stop() {
    this.#abort.abort();
  }

  async stream(response, options) {
    this.#reset();
    this.#begin();
    for await (const event of readStream(response, options)) this.#tell(event);
  }

  /** @param {T.StreamEvent} event */
  #tell(event) {
    const say = (name, detail) => this.dispatchEvent(new CustomEvent(name, { bubbles: true, composed: true, detail }));
    if (event.type === 'text') this.append(event.text);
    else if (event.type === 'citations') this.record = event.record;
    else if (event.type === 'error') this.#error.textContent = joined(' ', wordsFor(this)('cut'), event.message, event.code && `(${event.code})`);
    say('cite-event', event);
    if (event.type === 'end') this.finish().then(() => say('cite-end', event));
  }

  #reset() {
    this.#text = '';
    this.#from = 0;
    this.#plainly = false;
    this.#phase = '';
    this.record = null;
    for (const one of [this.#settled, this.#open, this.#error, this.#list.root]) one.replaceChildren();
  }

  #begin() {
    this.#phase = 'streaming';
    this.#body.ariaBusy = 'true';
    this.#status.textContent = '';
  }

  #find(numbers) {
    return [...new Set(numbers.flatMap((number) => this.#byNumber.get(number) ?? []))];
  }

  #chip(numbers) {
    return newChip(numbers, this.#find(numbers), wordsFor(this), this.getAttribute('chips') === 'publisher');
  }

  #render() {
    this.#dirty = true;
    return (this.#rendering ??= this.#renders());
  }

  async #renders() {
    await null;
    while (this.#dirty && this.#text && this.isConnected) {
      this.#dirty = false;
      const began = performance.now();
      await (this.#phase === 'done' ? this.#whole() : this.#part());
      const pause = Math.min(500, 60 + 3 * (performance.now() - began));
      if (this.#phase === 'streaming') await new Promise((wake) => setTimeout(wake, pause));
    }
    this.#rendering = null;
  }

  async #part() {
    const [text, from] = [this.#text, this.#from];
    const made = await this.#made({ text: text.slice(from), partial: true, record: { citations: [] } });
    if (this.#phase !== 'streaming' || this.#from !== from || !this.#text.startsWith(text)) return;
    if (!made) return morph(this.#open, this.#plain());
    this.#from = text.length - made.rest.length;
    this.#settled.append(this.#parsed(made.html));
    morph(this.#open, this.#parsed(made.open));
  }

  async #whole() {
    const text = this.#text;
    const citations = [...this.#byNumber.keys()].map((number) => ({ number }));
    const made = await this.#made({ text, record: { citations } });
    if (this.#phase !== 'done' || text !== this.#text) return;
    this.#settled.append(...this.#open.childNodes);
    morph(this.#settled, made ? this.#parsed(made.html) : this.#plain());
  }

  #made(ask) {
    if (this.hasAttribute('plain') || this.#plainly) return null;
    return this.call('render', { method: 'POST', body: JSON.stringify(ask) }).then((answer) => answer.json()).catch(() => void (this.#plainly = true));
  }

  #parsed(html) {
    const template = h('template');
    template.innerHTML = html;
    chips(template.content, (group, numbers) => this.#chip(numbers));
    return template.content;
  }

  #plain() {
    const p = h('p', { class: 'plain' });
    let from = 0;
    for (const { 0: found, index } of this.#text.matchAll(/(\[\d{1,3}(, ?\d{1,3})*\]|【\d{1,3}(†[^】]*)?】)+(?!\()/g)) {
      const numbers = (found.replace(/†[^】]*/g, '').match(/\d+/g) ?? []).map(Number);
      if (this.#phase === 'done' && !numbers.every((number) => this.#byNumber.has(number))) continue;
      p.append(this.#text.slice(from, index), '\u2060', this.#chip(numbers));
      from = index + found.length;
    }
    p.append(this.#text.slice(from));
    return h('div', {}, p);
  }

  #notes(numbers) {
    const notes = [...new Set(numbers)].sort((a, b) => a - b).map((number) => this.#byNumber.has(number) && `[${number}] ${line(this.#byNumber.get(number))}`);
    return `\n\n${joined('\n', ...notes)}`.trimEnd();
  }

  /** Copies chips as numbers, with notes. */
  #copied(event) {
    const range = /** @type {any} */ (getSelection()).getComposedRanges?.({ shadowRoots: [this.root] })[0];
    if (!range || !this.#body.contains(range.startContainer)) return;
    const live = new Range();
    live.setStart(range.startContainer, range.startOffset);
    live.setEnd(range.endContainer, range.endOffset);
    const part = h('div', { class: 'hidden' }, live.cloneContents());
    const cited = [...part.querySelectorAll('.cite-chip')].flatMap((chip) => {
      const numbers = numbersOf(chip);
      chip.replaceWith(numbers.map((number) => `[${number}]`).join(''));
      return numbers;
    });
    this.root.append(part);
    event.clipboardData.setData('text/plain', part.innerText.replaceAll('\u2060', '').trim() + this.#notes(cited));
    part.remove();
    event.preventDefault();
  }
}

const ACCENT = 'var(--cite-accent,light-dark(#0b57d0,#9ec1ff))';
const MUTED = 'var(--cite-muted,light-dark(#59616c,#a5adb8))';
const FAINT = 'light-dark(#e9edf3,#333a45)';
const PAPER = 'var(--cite-card-bg,light-dark(#fff,#1e2228));box-shadow:0 8px 28px #0003';

const CHIP = sheet(`
.cite-chip{position:relative;margin:0 .15em;padding:.1em .42em;border-radius:1em;font:500 .72em/1 var(--cite-font,system-ui);vertical-align:.28em;white-space:nowrap;text-decoration:none;color:var(--cite-chip-fg,${ACCENT});background:var(--cite-chip-bg,light-dark(#e6eefc,#26344c));cursor:pointer}
.cite-chip::after{content:"";position:absolute;inset:50% auto auto 50%;min-width:24px;width:100%;height:24px;transform:translate(-50%,-50%)}
.cite-chip.waits{color:${MUTED};background:${FAINT};cursor:default}
.cite-chip:not(.waits):is(:hover,[aria-expanded=true]){color:light-dark(#fff,#10151d);background:${ACCENT}}
@media(forced-colors:active){.cite-chip{outline:1px solid}}
`);

const BASE = sheet(`
:host{--_b:1px solid var(--cite-border,light-dark(#d9dee5,#3a4049));--_r:var(--cite-radius,10px);display:block;color:var(--cite-fg,light-dark(#1b1f24,#e7eaee));background:var(--cite-bg,transparent);font-family:var(--cite-font,system-ui);line-height:1.6;overflow-wrap:anywhere}
:host([hidden]){display:none}
a{color:${ACCENT}}
.title,.snippet{display:-webkit-box;-webkit-line-clamp:2;-webkit-box-orient:vertical;overflow:hidden}
.title{color:inherit;font-weight:600;text-decoration:none}
a.title:hover{text-decoration:underline}
.site,.snippet,.note{color:${MUTED};font-size:.9em}
.icon{flex:none;display:grid;place-items:center;width:2.2em;height:2.2em;border-radius:.5em;background:${FAINT};font-size:.8em;font-weight:600;overflow:hidden}
.icon img{width:100%}
.button,button{box-sizing:border-box;min-width:24px;min-height:24px;padding:.2em .7em;border:var(--_b);border-radius:.5em;background:none;color:inherit;font:inherit;font-size:.9em;text-decoration:none;cursor:pointer}
.button:hover,button:hover,[aria-pressed=true]{border-color:currentcolor;color:${ACCENT}}
`);

const CARD = sheet(`
:host{position:fixed;inset:auto;box-sizing:border-box;width:340px;max-width:calc(100vw - 16px);margin:0;padding:14px;border:var(--_b);border-radius:var(--_r);font-size:14px;overflow:visible;background:${PAPER}}
:host(:not(:popover-open)){display:none}
.head,.foot,.turn{display:flex;gap:10px;align-items:start}
.head>div{flex:1;min-width:0}
.snippet{-webkit-line-clamp:3;margin:.6em 0}
.foot,.turn{align-items:center}
.turn{margin-left:auto}
:host(.sheet){inset:auto 0 0!important;width:100%;max-width:none;padding:18px 18px calc(18px + env(safe-area-inset-bottom));border-radius:16px 16px 0 0;font-size:16px}
:host(.sheet) :is(button,.button){padding:.6em 1em}
`);

const LIST = sheet(`
:host{font-size:14px}
.bar{display:flex;flex-wrap:wrap;gap:8px;align-items:center}
.count{margin-right:auto;padding:0 .6em;border-radius:1em;background:${FAINT};font-size:.9em}
ol{list-style:none;margin:0;padding:0}
li{display:flex;gap:10px;padding:9px 8px;border-radius:var(--_r)}
li.marked{background:color-mix(in srgb,${ACCENT} 10%,transparent)}
li>div{min-width:0}
.number{min-width:1.4em;text-align:right;color:${MUTED}}
details{position:relative}
summary{list-style:none}
details>div{position:absolute;right:0;z-index:2;display:grid;min-width:9em;margin-top:4px;padding:5px;border:var(--_b);border-radius:var(--_r);background:${PAPER}}
details button{border:0;text-align:left}
`);

const ANSWER = sheet(`
.answer{line-break:strict}
.answer>div{display:contents}
.plain{white-space:pre-wrap}
.sources{margin-top:1em}
h1,h2,h3{font-size:1.2em;line-height:1.35}
ul,ol{padding-left:1.5em}
pre,table{overflow:auto}
pre{padding:.8em 1em;border:var(--_b);border-radius:var(--_r)}
blockquote{margin-left:0;padding-left:1em;border-left:3px solid}
table{display:block;border-collapse:collapse}
th,td{padding:.35em .7em;border:var(--_b);text-align:left}
:lang(zh) :is(em,i){font-style:normal;text-emphasis:filled}
.error{padding-left:.8em;border-left:3px solid;color:light-dark(#8c1d18,#ffb4ab)}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
`);

for (const [name, element] of Object.entries({ 'cite-card': Card, 'cite-list': CiteList, 'cite-answer': CiteAnswer }))
  if (!customElements.get(name)) customElements.define(name, element);
