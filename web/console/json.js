// JSON for people: indented, and its keys, strings and values told apart by colour.
import { copy, h } from './dom.js';
import { bytes, t } from './say.js';

/** More than this is shown as far as it goes. */
const SHOWN = 200_000;
/** More than this is shown in one colour: every colour is an element. */
const PAINTED = 40_000;

/** @param {string} text */
export function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

/** @param {string} text @returns {Node} */
function painted(text) {
  if (text.length > PAINTED) return document.createTextNode(text);
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
  const pre = h('pre', { class: 'code', tabindex: '0' }, colours ? painted(shown) : shown);
  if (text.length <= SHOWN) return pre;
  return h('div', {}, pre, h('p', { class: 'note' }, () => t('wire.cut', { shown: bytes(SHOWN), all: bytes(text.length) })));
}

/** A button that copies, and says that it did. @param {() => string} text @param {string} [test] */
export function copyButton(text, test = 'copy') {
  const label = h('span', {}, () => t('copy'));
  return h('button', { type: 'button', class: 'small', 'data-test': test, onclick: async () => {
    await copy(text());
    label.textContent = t('copied');
    setTimeout(() => (label.textContent = t('copy')), 1500);
  } }, label);
}
