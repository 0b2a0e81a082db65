// The tenant's key: prompted for after a 401, kept for this tab, deleted on demand.
import { onKeyRequired } from './api.js';
import { h, icon, localized } from './dom.js';
import { key, setKey } from './prefs.js';
import { t } from './i18n.js';

/** The open dialog. All calls that need the key wait for the same one. @type {Promise<boolean> | null} */
let asking = null;

/** @param {boolean} wrong true if citetap rejected the current key */
function prompt(wrong) {
  asking ??= new Promise((resolve) => {
    const input = h('input', { id: 'key', type: 'password', autocomplete: 'off', spellcheck: 'false', required: true, 'aria-describedby': 'key-error key-note', 'data-test': 'key-input' });
    const wrongKey = h('p', { id: 'key-error', class: 'headline bad', role: 'alert', 'data-test': 'key-wrong' });
    if (wrong) localized(wrongKey, () => (wrongKey.textContent = t('key.wrong')));
    else wrongKey.hidden = true;
    const form = h('form', { onsubmit: (/** @type {Event} */ event) => {
      event.preventDefault();
      const value = input.value.trim();
      if (value) close(value);
    } },
    h('h2', { id: 'key-title' }, () => t('key.title')),
    h('p', { id: 'key-note' }, () => t('key.note')),
    wrongKey,
    h('label', { for: 'key' }, () => t('key.label')),
    input,
    h('div', { class: 'row end' },
      h('button', { type: 'button', onclick: () => close(''), 'data-test': 'key-cancel' }, () => t('cancel')),
      h('button', { type: 'submit', class: 'main', 'data-test': 'key-use' }, () => t('key.use'))));
    const dialog = h('dialog', { class: 'key-ask', 'aria-labelledby': 'key-title', 'data-test': 'key-dialog', oncancel: (/** @type {Event} */ event) => {
      event.preventDefault();
      close('');
    } }, form);
    /** @param {string} value */
    function close(value) {
      dialog.close();
      dialog.remove();
      asking = null;
      if (value) setKey(value);
      resolve(value !== '');
    }
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
  return asking;
}

/** The button in the header that deletes the key. Hidden if there is none. */
export function keyControl() {
  onKeyRequired(prompt);
  const button = h('button', { class: 'quiet', type: 'button', title: () => t('key.forget.title'), 'data-test': 'key-forget', onclick: () => {
    setKey('');
    location.reload();
  } }, icon('key'), h('span', { class: 'wide-only' }, () => t('key.forget')));
  const show = () => {
    button.hidden = key() === '';
  };
  document.addEventListener('citetap-key', show);
  show();
  return button;
}
