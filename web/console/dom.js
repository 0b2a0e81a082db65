// Creates DOM elements without innerHTML: untrusted strings only ever become text nodes.

/** @typedef {string | number | Node | null | undefined | false | (() => string | number)} Child */
/** @typedef {Record<string, any>} Props */

/** Functions that set the translated text of an element. They run again when the language changes. @type {WeakMap<Element, Array<() => void>>} */
const localizers = new WeakMap();

/**
 * Runs `update` now, and again when the language changes while the element is in the document.
 * @param {Element} element
 * @param {() => void} update
 */
export function localized(element, update) {
  update();
  const own = localizers.get(element);
  if (own) own.push(update);
  else localizers.set(element, [update]);
  element.setAttribute('data-localized', '');
}

export function relocalize() {
  for (const element of document.querySelectorAll('[data-localized]')) {
    for (const update of localizers.get(element) ?? []) update();
  }
}

/**
 * @param {Element} element
 * @param {Child[]} children
 */
export function appendChildren(element, ...children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) {
      element.append(child);
    } else if (typeof child === 'function') {
      const text = document.createTextNode('');
      element.append(text);
      localized(element, () => {
        text.data = String(child());
      });
    } else {
      element.append(String(child));
    }
  }
}

/**
 * @param {Element} element
 * @param {Props} props `on…` are event listeners; any other function returns a translated attribute
 */
function setProps(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (typeof value === 'function') localized(element, () => element.setAttribute(name, String(value())));
    else element.setAttribute(name, value === true ? '' : String(value));
  }
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props} [props]
 * @param {Child[]} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  setProps(element, props);
  appendChildren(element, ...children);
  return element;
}

/**
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Props} [props]
 * @param {Child[]} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function s(tag, props = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  setProps(element, props);
  appendChildren(element, ...children);
  return element;
}

/** @param {Element} element @param {Child[]} children */
export function fill(element, ...children) {
  element.replaceChildren();
  localizers.delete(element);
  appendChildren(element, ...children);
}

// SVG paths in a 20 by 20 view box, drawn in the current text colour.
const paths = {
  chat: 'M3.5 4.5h13v9h-7l-3.5 3v-3h-2.5z',
  messages: 'M4 5h12M4 10h12M4 15h8',
  domains: 'M4 16.5v-5M8 16.5v-9M12 16.5v-6.5M16 16.5v-12',
  status: 'M2.5 10.5h3.5l2.5-6 3.5 11 2.5-5h3',
  sun: 'M10 6.5a3.5 3.5 0 1 1 0 7a3.5 3.5 0 0 1 0-7M10 2.5v1.5M10 16v1.5M2.5 10h1.5M16 10h1.5M4.7 4.7l1.06 1.06M14.24 14.24l1.06 1.06M4.7 15.3l1.06-1.06M14.24 5.76l1.06-1.06',
  moon: 'M16 11.8A6.5 6.5 0 0 1 8.2 4a6.5 6.5 0 1 0 7.8 7.8z',
  auto: 'M10 3.5a6.5 6.5 0 1 1 0 13a6.5 6.5 0 0 1 0-13',
  copy: 'M7.5 7.5h8v8h-8zM12.5 7.5v-3h-8v8h3',
  link: 'M8.5 11.5l3-3M7 9.5l-2 2a2.5 2.5 0 0 0 3.5 3.5l2-2M13 10.5l2-2a2.5 2.5 0 0 0-3.5-3.5l-2 2',
  down: 'M10 3.5v9M6 9l4 4 4-4M4 16.5h12',
  trash: 'M4 6h12M8 6v-1.5h4v1.5M5.5 6l.7 10h7.6l.7-10',
  stop: 'M5.5 5.5h9v9h-9z',
  send: 'M10 16v-12M5 9l5-5 5 5',
  key: 'M9 10a3.25 3.25 0 1 1-6.5 0a3.25 3.25 0 0 1 6.5 0M9 10h8.5M14.5 10v3M17.5 10v2.5',
  back: 'M11.5 5l-5 5 5 5',
};

/** @param {keyof typeof paths} name */
export function icon(name) {
  return s('svg', { class: 'icon', viewBox: '0 0 20 20', 'aria-hidden': 'true', focusable: 'false' }, s('path', { d: paths[name] }), name === 'auto' && s('path', { class: 'solid', d: 'M10 3.5a6.5 6.5 0 0 1 0 13z' }));
}

/**
 * Copies text to the clipboard. `navigator.clipboard` requires https, so plain http falls back to `execCommand`.
 * @param {string} text
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h('textarea', { class: 'unseen', 'aria-hidden': 'true' });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
}

/** @param {Blob} blob @param {string} name */
export function save(blob, name) {
  const url = URL.createObjectURL(blob);
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
