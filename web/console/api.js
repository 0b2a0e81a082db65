// Calls to citetap. An answer that is no success becomes a Trouble: a sentence that can be shown.
import { key, setKey } from './prefs.js';
import { named, t } from './say.js';

/** @typedef {{ method?: string, body?: string, headers?: Record<string, string>, signal?: AbortSignal }} Call */

export class Trouble extends Error {
  /**
   * @param {string} message
   * @param {{ status?: number, kind?: string, ours?: boolean, wait?: number }} [facts]
   */
  constructor(message, { status = 0, kind = '', ours = false, wait = 0 } = {}) {
    super(message);
    this.status = status;
    /** The last part of a problem's type, or of an OpenAI error its code. */
    this.kind = kind;
    /** citetap said it, not the upstream. */
    this.ours = ours;
    this.wait = wait;
  }

  /** What to do about it, as far as that is known. */
  advice() {
    const advice = named('advice', this.kind);
    if (advice !== this.kind) return advice;
    if (this.status === 0) return t('advice.unreachable');
    if (this.status === 401 || this.status === 403) return t('advice.upstream-key');
    if (this.status === 429) return t('advice.rate');
    return this.status >= 500 ? t('advice.server') : '';
  }
}

/** Asks the reader for a key; resolves to false when they would rather not. @type {(wrong: boolean) => Promise<boolean>} */
let askForKey = async () => false;

/** @param {typeof askForKey} ask */
export function onKeyNeeded(ask) {
  askForKey = ask;
}

/** @param {string} path below the console's own address, so that it also works behind a prefix */
export const place = (path) => new URL(path.replace(/^\//, ''), document.baseURI.replace(/#.*/, '')).href;

/** Headers that every call has. @returns {Record<string, string>} */
export const credentials = () => (key() ? { 'x-citetap-key': key() } : {});

/**
 * @param {Response} response
 * @returns {Promise<Trouble>}
 */
export async function troubleOf(response) {
  const text = await response.text().catch(() => '');
  const wait = Number(response.headers.get('retry-after')) || 0;
  const status = response.status;
  let said = '';
  let kind = '';
  let ours = false;
  try {
    const body = JSON.parse(text);
    if (typeof body.type === 'string' && body.type.startsWith('urn:citetap:problem:')) {
      kind = body.type.slice('urn:citetap:problem:'.length);
      said = body.detail ? `${body.title}: ${body.detail}` : body.title;
      ours = true;
    } else if (body.error?.message) {
      kind = String(body.error.code ?? '').replaceAll('_', '-');
      said = String(body.error.message);
      ours = said.includes('x-citetap-key');
      if (ours) kind = 'unauthorized';
    } else {
      said = String(body.message ?? body.detail ?? body.title ?? '');
    }
  } catch {
    said = text.length < 200 && !text.includes('<') ? text.trim() : '';
  }
  const message = said ? t('trouble.status', { status, said }) : t('trouble.bare', { status });
  return new Trouble(message, { status, kind, ours, wait });
}

/**
 * Any answer, also an error's. Asks for a key where citetap wants one, and tries again with it.
 * @param {string} path
 * @param {Call} [call]
 * @returns {Promise<Response>}
 */
export async function ask(path, call = {}) {
  for (;;) {
    const used = key();
    const headers = { ...call.headers, ...credentials() };
    let response;
    try {
      response = await fetch(place(path), { ...call, headers, cache: 'no-store' });
    } catch (error) {
      if (call.signal?.aborted) throw error;
      throw new Trouble(t('trouble.unreachable'));
    }
    if (response.status !== 401) return response;
    const trouble = await troubleOf(response.clone());
    if (!trouble.ours || trouble.kind !== 'unauthorized') return response;
    // Another call may have got a key in the meantime.
    if (key() !== used) continue;
    if (used) setKey('');
    if (!(await askForKey(used !== ''))) throw new Trouble(t('trouble.key'), { status: 401, kind: 'unauthorized', ours: true });
  }
}

/**
 * @param {string} path
 * @param {Call} [call]
 * @returns {Promise<any>}
 */
export async function json(path, call) {
  const response = await ask(path, call);
  if (!response.ok) throw await troubleOf(response);
  if (response.status === 204) return null;
  return response.json().catch(() => {
    throw new Trouble(t('trouble.not-json'), { status: response.status });
  });
}

/**
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} values empty ones are left out
 */
export function query(path, values) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}
