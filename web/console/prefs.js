// Preferences in the browser's storage. If storage is disabled, they last until the page is closed.

/** @param {string} name */
export function readPref(name) {
  try {
    return localStorage.getItem(`citetap.${name}`);
  } catch {
    return null;
  }
}

/** @param {string} name @param {string | null} value */
export function writePref(name, value) {
  try {
    if (value === null) localStorage.removeItem(`citetap.${name}`);
    else localStorage.setItem(`citetap.${name}`, value);
  } catch {
    // Storage is disabled.
  }
}

const KEY = 'citetap.key';
/** Copy of the key, for browsers with storage disabled. */
let keyInMemory = '';

/** The tenant's key. Kept for this tab only, and never part of a URL. */
export function key() {
  try {
    return sessionStorage.getItem(KEY) ?? keyInMemory;
  } catch {
    return keyInMemory;
  }
}

/** @param {string} value empty: delete the key */
export function setKey(value) {
  keyInMemory = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Storage is disabled; keyInMemory has the key.
  }
  document.dispatchEvent(new Event('citetap-key'));
}
