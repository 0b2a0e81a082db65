// The reader's language: words, numbers, times.
import { en } from './words.en.js';
import { zh } from './words.zh.js';
import { speakAgain } from './dom.js';
import { remember, remembered } from './prefs.js';

/** @typedef {keyof typeof en} Word */

const words = { en, zh };
/** @type {'en' | 'zh'} */
let language = 'en';
/** @type {Record<string, Intl.NumberFormat | Intl.DateTimeFormat | Intl.RelativeTimeFormat>} */
let formats = {};

export const locale = () => (language === 'zh' ? 'zh-CN' : 'en');
export const lang = () => language;

/** @param {'en' | 'zh'} to */
export function speak(to) {
  language = to;
  formats = {};
  document.documentElement.lang = locale();
  remember('lang', to);
  speakAgain();
  document.dispatchEvent(new Event('citetap-language'));
}

export function guessLanguage() {
  const chosen = remembered('lang');
  const first = navigator.languages?.[0] ?? navigator.language ?? 'en';
  speak(chosen === 'en' || chosen === 'zh' ? chosen : first.toLowerCase().startsWith('zh') ? 'zh' : 'en');
}

/**
 * `{n}` is a value; `{n|source|sources}` is a number and its noun.
 * @param {Word} word
 * @param {Record<string, string | number>} [values]
 */
export function t(word, values = {}) {
  return words[language][word].replace(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (_, name, one, many) => {
    const value = values[name] ?? '';
    const shown = typeof value === 'number' ? number(value) : value;
    return one === undefined ? shown : `${shown} ${value === 1 ? one : many}`;
  });
}

/**
 * A sentence that is known only by a part of its name, or the name itself.
 * @param {string} prefix
 * @param {string} name
 */
export function named(prefix, name) {
  const word = `${prefix}.${name}`;
  return word in words[language] ? t(/** @type {Word} */ (word)) : name;
}

/** @template T @param {string} key @param {() => T} make @returns {T} */
function format(key, make) {
  return /** @type {T} */ (formats[key] ??= /** @type {any} */ (make()));
}

/** @param {number} value @param {number} [digits] */
export function number(value, digits = 0) {
  return format(`n${digits}`, () => new Intl.NumberFormat(locale(), { maximumFractionDigits: digits })).format(value);
}

/** From 0 to 1, with two decimals always: they stand below each other. @param {number} value */
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

/** Of a day such as 2026-11-16, which is UTC's. @param {string} day */
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
