// Parses the parts of OpenMetrics text that the status page needs: samples, sums, rates, quantiles.

/** @typedef {{ name: string, labels: Record<string, string>, value: number }} Sample */

/** @param {string} text @returns {Sample[]} */
export function samples(text) {
  const all = [];
  for (const line of text.split('\n')) {
    if (line === '' || line.startsWith('#')) continue;
    const found = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (!found) continue;
    const [, name = '', inside = '', number = ''] = found;
    /** @type {Record<string, string>} */
    const labels = {};
    for (const [, label = '', value = ''] of inside.matchAll(/([a-zA-Z_]\w*)="((?:\\.|[^"\\])*)"/g)) {
      labels[label] = value.replace(/\\(.)/g, (_, one) => (one === 'n' ? '\n' : one));
    }
    const value = number === '+Inf' ? Infinity : Number(number);
    if (!Number.isNaN(value)) all.push({ name, labels, value });
  }
  return all;
}

/**
 * @param {Sample[]} all
 * @param {string} name
 * @param {(labels: Record<string, string>) => boolean} [fits]
 */
export function sum(all, name, fits = () => true) {
  return all.reduce((total, one) => (one.name === name && fits(one.labels) ? total + one.value : total), 0);
}

/** @param {Sample[]} all @param {string} label @returns {string[]} */
export function valuesOf(all, label) {
  return [...new Set(all.flatMap((one) => (one.labels[label] === undefined ? [] : [one.labels[label] ?? ''])))].sort();
}

/**
 * The cumulative buckets of a histogram, summed over all matching series.
 * @param {Sample[]} all
 * @param {string} name
 * @param {(labels: Record<string, string>) => boolean} [fits]
 * @returns {Map<number, number>}
 */
export function buckets(all, name, fits = () => true) {
  const counts = new Map();
  for (const one of all) {
    if (one.name !== `${name}_bucket` || !fits(one.labels)) continue;
    const edge = one.labels.le === '+Inf' ? Infinity : Number(one.labels.le);
    counts.set(edge, (counts.get(edge) ?? 0) + one.value);
  }
  return counts;
}

/** Difference of two readings. After a restart (counters decreased) the later reading. @param {Map<number, number>} now @param {Map<number, number>} [before] */
export function between(now, before) {
  if (!before || (before.get(Infinity) ?? 0) > (now.get(Infinity) ?? 0)) return now;
  return new Map([...now].map(([edge, count]) => [edge, count - (before.get(edge) ?? 0)]));
}

/**
 * Interpolates linearly within a bucket, as `histogram_quantile` of Prometheus does.
 * @param {Map<number, number>} counts
 * @param {number} share
 * @returns {number | null} null for an empty histogram
 */
export function quantile(counts, share) {
  const edges = [...counts.keys()].sort((a, b) => a - b);
  const all = counts.get(Infinity) ?? 0;
  if (all === 0) return null;
  const rank = share * all;
  let below = 0;
  let from = 0;
  for (const edge of edges) {
    const count = counts.get(edge) ?? 0;
    if (count >= rank) {
      if (edge === Infinity) return from;
      return count === below ? edge : from + (edge - from) * ((rank - below) / (count - below));
    }
    below = count;
    from = edge;
  }
  return from;
}
