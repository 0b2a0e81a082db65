// Shows JSON indented and with syntax colours.
import { copy, h } from './dom.js';
import { bytes, t } from './i18n.js';

/** Longer text is truncated to this many characters. */
const SHOWN = 200_000;
/** Longer text has no syntax colours, because every coloured token is an element. */
const HIGHLIGHTED = 40_000;

/** @param {string} text */
export function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** @param {string} text @returns {Node} */
function highlighted(text) {
  if (text.length > HIGHLIGHTED) return document.createTextNode(text);
  const all = new DocumentFragment();
  let from = 0;
  for (const found of text.matchAll(/("(?:\\.|[^"\\])*")(\s*:)?|\b(?:true|false|null)\b|-?\b\d[\d.eE+-]*/g)) {
    const [token, string, colon] = found;
    all.append(text.slice(from, found.index));
    const kind = string === undefined ? 'j-value' : colon === undefined ? 'j-text' : 'j-key';
    all.append(h('span', { class: kind }, string ?? token), colon ?? '');
    from = found.index + token.length;
  }
  all.append(text.slice(from));
  return all;
}

/** @param {string} text @param {boolean} [colours] */
export function code(text, colours = true) {
  const shown = text.slice(0, SHOWN);
  const pre = h('pre', { class: 'code', tabindex: '0' }, colours ? highlighted(shown) : shown);
  if (text.length <= SHOWN) return pre;
  return h('div', {}, pre, h('p', { class: 'note' }, () => t('wire.cut', { shown: bytes(SHOWN), all: bytes(text.length) })));
}

/** A button that copies text and confirms it. @param {() => string} text @param {string} [test] */
export function copyButton(text, test = 'copy') {
  const label = h('span', {}, () => t('copy'));
  return h('button', { type: 'button', class: 'small', 'data-test': test, onclick: async () => {
    await copy(text());
    label.textContent = t('copied');
    setTimeout(() => (label.textContent = t('copy')), 1500);
  } }, label);
}
