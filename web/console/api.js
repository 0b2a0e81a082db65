// HTTP calls to citetap. A failed call throws a ApiError, whose message can be shown to the user.
import { key, setKey } from './prefs.js';
import { translateOr, t } from './i18n.js';

/** @typedef {{ method?: string, body?: string, headers?: Record<string, string>, signal?: AbortSignal }} Call */

export class ApiError extends Error {
  /**
   * @param {string} message
   * @param {{ status?: number, kind?: string, ours?: boolean, wait?: number }} [facts]
   */
  constructor(message, { status = 0, kind = '', ours = false, wait = 0 } = {}) {
    super(message);
    this.status = status;
    /** The last segment of a problem's type (RFC 9457), or the code of an OpenAI error. */
    this.kind = kind;
    /** True if the error comes from citetap, not from the upstream. */
    this.ours = ours;
    this.wait = wait;
  }

  /** Advice for the user, or an empty string. */
  advice() {
    const advice = translateOr('advice', this.kind);
    if (advice !== this.kind) return advice;
    if (this.status === 0) return t('advice.unreachable');
    if (this.status === 401 || this.status === 403) return t('advice.upstream-key');
    if (this.status === 429) return t('advice.rate');
    return this.status >= 500 ? t('advice.server') : '';
  }
}

/** Prompts the user for a key. Resolves to false if the user cancels. @type {(wrong: boolean) => Promise<boolean>} */
let promptForKey = async () => false;

/** @param {typeof promptForKey} prompt */
export function onKeyRequired(prompt) {
  promptForKey = prompt;
}

/** @param {string} path resolved against the console's URL, so that it also works behind a path prefix */
export const resolveUrl = (path) => new URL(path.replace(/^\//, ''), document.baseURI.replace(/#.*/, '')).href;

/** Headers of every call. @returns {Record<string, string>} */
export const credentials = () => (key() ? { 'x-citetap-key': key() } : {});

/**
 * @param {Response} response
 * @returns {Promise<ApiError>}
 */
export async function errorFromResponse(response) {
  const text = await response.text().catch(() => '');
  const wait = Number(response.headers.get('retry-after')) || 0;
  const status = response.status;
  let reason = '';
  let kind = '';
  let ours = false;
  try {
    const body = JSON.parse(text);
    if (typeof body.type === 'string' && body.type.startsWith('urn:citetap:problem:')) {
      kind = body.type.slice('urn:citetap:problem:'.length);
      reason = body.detail ? `${body.title}: ${body.detail}` : body.title;
      ours = true;
    } else if (body.error?.message) {
      kind = String(body.error.code ?? '').replaceAll('_', '-');
      reason = String(body.error.message);
      ours = reason.includes('x-citetap-key');
      if (ours) kind = 'unauthorized';
    } else {
      reason = String(body.message ?? body.detail ?? body.title ?? '');
    }
  } catch {
    reason = text.length < 200 && !text.includes('<') ? text.trim() : '';
  }
  const message = reason ? t('trouble.status', { status, reason }) : t('trouble.bare', { status });
  return new ApiError(message, { status, kind, ours, wait });
}

/**
 * Returns any response, including errors. After a 401 of citetap it prompts for a key and retries.
 * @param {string} path
 * @param {Call} [call]
 * @returns {Promise<Response>}
 */
export async function request(path, call = {}) {
  for (;;) {
    const used = key();
    const headers = { ...call.headers, ...credentials() };
    let response;
    try {
      response = await fetch(resolveUrl(path), { ...call, headers, cache: 'no-store' });
    } catch (error) {
      if (call.signal?.aborted) throw error;
      throw new ApiError(t('trouble.unreachable'));
    }
    if (response.status !== 401) return response;
    const trouble = await errorFromResponse(response.clone());
    if (!trouble.ours || trouble.kind !== 'unauthorized') return response;
    // Another call may have set a key in the meantime.
    if (key() !== used) continue;
    if (used) setKey('');
    if (!(await promptForKey(used !== ''))) throw new ApiError(t('trouble.key'), { status: 401, kind: 'unauthorized', ours: true });
  }
}

/**
 * @param {string} path
 * @param {Call} [call]
 * @returns {Promise<any>}
 */
export async function json(path, call) {
  const response = await request(path, call);
  if (!response.ok) throw await errorFromResponse(response);
  if (response.status === 204) return null;
  return response.json().catch(() => {
    throw new ApiError(t('trouble.not-json'), { status: response.status });
  });
}

/**
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} values empty values are omitted
 */
export function query(path, values) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return text ? `${path}?${text}` : path;
}
