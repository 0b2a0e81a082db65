// Localization: translated texts, numbers, times.
import { en } from './strings.en.js';
import { zh } from './strings.zh.js';
import { relocalize } from './dom.js';
import { writePref, readPref } from './prefs.js';

/** @typedef {keyof typeof en} TextKey */

const strings = { en, zh };
/** @type {'en' | 'zh'} */
let language = 'en';
/** @type {Record<string, Intl.NumberFormat | Intl.DateTimeFormat | Intl.RelativeTimeFormat>} */
let formats = {};

export const locale = () => (language === 'zh' ? 'zh-CN' : 'en');
export const lang = () => language;

/** @param {'en' | 'zh'} to */
export function setLanguage(to) {
  language = to;
  formats = {};
  document.documentElement.lang = locale();
  writePref('lang', to);
  relocalize();
  document.dispatchEvent(new Event('citetap-language'));
}

export function detectLanguage() {
  const chosen = readPref('lang');
  const first = navigator.languages?.[0] ?? navigator.language ?? 'en';
  setLanguage(chosen === 'en' || chosen === 'zh' ? chosen : first.toLowerCase().startsWith('zh') ? 'zh' : 'en');
}

/**
 * Translates a text. `{n}` is replaced by a value, `{n|source|sources}` by a number and its noun.
 * @param {TextKey} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values = {}) {
  return strings[language][key].replace(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (_, name, one, many) => {
    const value = values[name] ?? '';
    const shown = typeof value === 'number' ? number(value) : value;
    return one === undefined ? shown : `${shown} ${value === 1 ? one : many}`;
  });
}

/**
 * Translates `prefix.name` if there is such a text, otherwise returns `name`.
 * @param {string} prefix
 * @param {string} name
 */
export function translateOr(prefix, name) {
  const key = `${prefix}.${name}`;
  return key in strings[language] ? t(/** @type {TextKey} */ (key)) : name;
}

/** @template T @param {string} key @param {() => T} make @returns {T} */
function format(key, make) {
  return /** @type {T} */ (formats[key] ??= /** @type {any} */ (make()));
}

/** @param {number} value @param {number} [digits] */
export function number(value, digits = 0) {
  return format(`n${digits}`, () => new Intl.NumberFormat(locale(), { maximumFractionDigits: digits })).format(value);
}

/** A score from 0 to 1 with two decimals, so that scores in a column align. @param {number} value */
export function score(value) {
  return format('score', () => new Intl.NumberFormat(locale(), { minimumFractionDigits: 2, maximumFractionDigits: 2 })).format(value);
}

/** @param {number | null | undefined} share */
export function percent(share) {
  if (share === null || share === undefined || !Number.isFinite(share)) return '–';
  return format('%', () => new Intl.NumberFormat(locale(), { style: 'percent', maximumFractionDigits: 0 })).format(share);
}

/** @param {number} count */
export function bytes(count) {
  if (count < 1000) return `${number(count, count < 10 ? 1 : 0)} B`;
  if (count < 1e6) return `${number(count / 1e3, count < 1e4 ? 1 : 0)} kB`;
  if (count < 1e9) return `${number(count / 1e6, 1)} MB`;
  return `${number(count / 1e9, 1)} GB`;
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return '–';
  if (seconds < 0.001) return `${number(seconds * 1e3, 2)} ms`;
  if (seconds < 0.01) return `${number(seconds * 1e3, 1)} ms`;
  if (seconds < 1) return `${number(seconds * 1e3)} ms`;
  if (seconds < 90) return `${number(seconds, 1)} s`;
  if (seconds < 5400) return `${number(seconds / 60)} min`;
  if (seconds < 172_800) return `${number(seconds / 3600, 1)} h`;
  return `${number(seconds / 86_400, 1)} d`;
}

/** @param {string} iso */
export function dateTime(iso) {
  const date = new Date(iso);
  if (Number.isNaN(date.getTime())) return iso;
  return format('dt', () => new Intl.DateTimeFormat(locale(), { dateStyle: 'medium', timeStyle: 'medium' })).format(date);
}

/** Formats a UTC day such as 2026-11-16. @param {string} day */
export function shortDay(day) {
  const date = new Date(`${day}T00:00:00Z`);
  if (Number.isNaN(date.getTime())) return day;
  return format('day', () => new Intl.DateTimeFormat(locale(), { month: 'short', day: 'numeric', timeZone: 'UTC' })).format(date);
}

/** @param {string} iso */
export function ago(iso) {
  const seconds = (new Date(iso).getTime() - Date.now()) / 1000;
  if (!Number.isFinite(seconds)) return iso;
  const relative = format('ago', () => new Intl.RelativeTimeFormat(locale(), { numeric: 'auto' }));
  const far = Math.abs(seconds);
  if (far < 45) return relative.format(0, 'second');
  if (far < 2700) return relative.format(Math.round(seconds / 60), 'minute');
  if (far < 79_200) return relative.format(Math.round(seconds / 3600), 'hour');
  if (far < 30 * 86_400) return relative.format(Math.round(seconds / 86_400), 'day');
  return dateTime(iso);
}
