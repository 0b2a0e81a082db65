// What the browser keeps for us. Where storage is switched off, nothing is kept and all works.

/** @param {string} name */
export function remembered(name) {
  try {
    return localStorage.getItem(`citetap.${name}`);
  } catch {
    return null;
  }
}

/** @param {string} name @param {string | null} value */
export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`citetap.${name}`);
    else localStorage.setItem(`citetap.${name}`, value);
  } catch {
    // Not kept.
  }
}

const KEY = 'citetap.key';
let held = '';

/** The tenant's key: for this tab only, and never in a URL. */
export function key() {
  try {
    return sessionStorage.getItem(KEY) ?? held;
  } catch {
    return held;
  }
}

/** @param {string} value empty: forget it */
export function setKey(value) {
  held = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Held in memory.
  }
  document.dispatchEvent(new Event('citetap-key'));
}
