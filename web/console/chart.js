// A stacked bar chart by day, and a sparkline, as SVG.
import { h, s } from './dom.js';
import { number, shortDay, t } from './i18n.js';

/** @typedef {{ name: () => string, values: number[], colour: number }} Series */

const HEIGHT = 230;
const LEFT = 36;
const BOTTOM = 24;
const TOP = 10;

/** About four axis ticks at round whole numbers. @param {number} most */
export function ticks(most) {
  const rough = Math.max(1, most / 4);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough) ?? rough);
  const all = [];
  for (let at = 0; at < most + step; at += step) all.push(at);
  return all;
}

/**
 * @param {string[]} days such as 2026-11-16
 * @param {Series[]} series the first is the lowest
 */
export function chart(days, series) {
  const totals = days.map((_, at) => series.reduce((sum, one) => sum + (one.values[at] ?? 0), 0));
  const scale = ticks(Math.max(1, ...totals));
  const most = scale.at(-1) ?? 1;
  let chosen = -1;

  const legend = h('ul', { class: 'legend', 'data-test': 'chart-legend' });
  const when = h('strong', { class: 'when', 'data-test': 'chart-day' });
  const plot = h('div', { class: 'plot', role: 'slider', tabindex: '0', 'data-test': 'chart-plot', 'aria-label': () => t('domains.chart.day'), 'aria-valuemin': '0', 'aria-valuemax': String(days.length - 1) });
  const element = h('figure', { class: 'chart', 'data-test': 'chart' },
    h('figcaption', {}, when, legend), h('div', { class: 'canvas' }, plot));
  const canvas = /** @type {HTMLElement} */ (element.lastElementChild);

  /** @type {Element[]} */ let columns = [];
  let width = 0;

  const describe = (/** @type {number} */ at) =>
    `${shortDay(days[at] ?? '')}: ${series.map((one) => `${one.name()} ${number(one.values[at] ?? 0)}`).join(', ')}`;

  const longest = Math.max(...series.map((one) => number(one.values.reduce((sum, value) => sum + value, 0)).length));
  // Reserve the width of the sums, so that the legend does not move when another day is hovered.
  legend.style.setProperty('--digits', String(longest));

  function update() {
    const sums = series.map((one) => (chosen < 0 ? one.values.reduce((sum, value) => sum + value, 0) : (one.values[chosen] ?? 0)));
    const total = sums.reduce((sum, value) => sum + value, 0);
    when.textContent = `${chosen < 0 ? `${shortDay(days[0] ?? '')} – ${shortDay(days.at(-1) ?? '')}` : shortDay(days[chosen] ?? '')} · ${t('domains.total')} ${number(total)}`;
    legend.replaceChildren(...series.map((one, at) => h('li', {}, h('span', { class: `swatch c${one.colour}` }), h('span', {}, one.name()), h('b', {}, number(sums[at] ?? 0)))));
    plot.setAttribute('aria-valuenow', String(Math.max(chosen, 0)));
    plot.setAttribute('aria-valuetext', chosen < 0 ? t('domains.chart.hint') : describe(chosen));
    columns.forEach((column, at) => column.classList.toggle('on', at === chosen));
  }

  function draw() {
    const inner = Math.max(120, width - LEFT - 4);
    const step = inner / days.length;
    const thick = Math.max(1.5, Math.min(36, step * 0.72));
    const high = HEIGHT - TOP - BOTTOM;
    const y = (/** @type {number} */ value) => TOP + high - (value / most) * high;
    const lines = scale.flatMap((value) => [
      s('line', { class: 'grid', x1: LEFT, x2: width, y1: y(value), y2: y(value) }),
      s('text', { class: 'axis', x: LEFT - 8, y: y(value) + 4, 'text-anchor': 'end' }, number(value))]);
    const every = Math.max(1, Math.ceil(days.length / Math.max(2, Math.floor(inner / 76))));
    const labels = days.map((day, at) => (days.length - 1 - at) % every === 0 && s('text', { class: 'axis', x: Math.min(LEFT + step * (at + 0.5), width - 20), y: HEIGHT - 7, 'text-anchor': 'middle' }, shortDay(day)));
    columns = days.map((_, at) => {
      let base = 0;
      const left = LEFT + step * at + (step - thick) / 2;
      const parts = series.map((one) => {
        const value = one.values[at] ?? 0;
        if (value === 0) return null;
        const from = y(base);
        base += value;
        // A gap between two parts distinguishes them without colours.
        const tall = Math.max(0.5, from - y(base) - 1);
        return s('rect', { class: `c${one.colour}`, x: left, y: y(base), width: thick, height: tall, rx: Math.min(1.5, thick / 4) });
      });
      return s('g', { class: 'column' }, s('rect', { class: 'behind', x: LEFT + step * at, y: TOP, width: step, height: high }), ...parts);
    });
    const top = series[0];
    const svg = s('svg', { role: 'img', width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, 'aria-labelledby': 'chart-title chart-desc' },
      s('title', { id: 'chart-title' }, t('domains.chart')),
      s('desc', { id: 'chart-desc' }, t('domains.chart.desc', { from: shortDay(days[0] ?? ''), to: shortDay(days.at(-1) ?? ''), top: top?.name() ?? '–', total: totals.reduce((sum, value) => sum + value, 0) })),
      ...lines, ...columns, ...labels);
    canvas.querySelector('svg')?.remove();
    canvas.prepend(svg);
    plot.style.left = `${LEFT}px`;
    update();
  }

  /** @param {number} at */
  function choose(at) {
    chosen = Math.max(-1, Math.min(days.length - 1, at));
    update();
  }
  plot.addEventListener('pointermove', (event) => {
    const box = plot.getBoundingClientRect();
    choose(Math.floor(((event.clientX - box.left) / box.width) * days.length));
  });
  plot.addEventListener('pointerleave', () => document.activeElement !== plot && choose(-1));
  plot.addEventListener('focus', () => chosen < 0 && choose(days.length - 1));
  plot.addEventListener('blur', () => choose(-1));
  plot.addEventListener('keydown', (event) => {
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: -7, PageDown: 7, Home: -1e6, End: 1e6 };
    const by = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (by === undefined) return;
    event.preventDefault();
    choose(Math.max(0, chosen + by));
  });
  new ResizeObserver(() => {
    if (canvas.clientWidth === width || canvas.clientWidth === 0) return;
    width = canvas.clientWidth;
    draw();
  }).observe(canvas);
  return element;
}

/**
 * A small line chart without axes, for live values.
 * @param {number[]} values
 */
export function sparkline(values) {
  const most = Math.max(...values, 1e-9);
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(27 - (value / most) * 24).toFixed(1)}`).join(' ');
  return s('svg', { class: 'spark', viewBox: '0 0 100 30', preserveAspectRatio: 'none', 'aria-hidden': 'true', focusable: 'false' },
    values.length > 1 && s('polygon', { class: 'area', points: `0,30 ${points} 100,30` }),
    values.length > 1 && s('polyline', { points }));
}
