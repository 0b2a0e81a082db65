"""Formats the results as a text table and as an SVG picture."""

from statistics import median
from xml.sax.saxutils import escape

# Figure: title, unit, digits, whether less is better.
FIGURES = {
    "paced_cpu": ("CPU per event, paced", "µs", 2, True),
    "tap_cpu": ("tap, CPU per event", "× of off", 2, True),
    "exchange_200": ("CPU per event, whole, 200 events", "µs", 2, True),
    "exchange_100": ("CPU per event, whole, 100 events", "µs", 2, True),
    "exchange_20": ("CPU per event, whole, 20 events", "µs", 2, True),
    "peak_200": ("peak memory per stream", "KiB", 1, True),
    "peak_100": ("peak memory per stream, 100 events", "KiB", 1, True),
    "peak_20": ("peak memory per stream, 20 events", "KiB", 1, True),
    "arrive_p50": ("first byte of a crowd, median", "ms", 1, True),
    "arrive_p99": ("first byte of a crowd, 99 %", "ms", 1, True),
    "arrive_all": ("until all have a first byte", "ms", 1, True),
    "arrive_sent": ("until all have asked", "ms", 1, True),
    "lag_p50": ("lag of an event, median", "µs", 0, True),
    "lag_p99": ("lag, 99 %", "µs", 0, True),
    "lag_p999": ("lag, 99.9 %", "µs", 0, True),
    "ttfb": ("first byte of one, median", "µs", 0, True),
    "memory_idle": ("memory, idle", "MiB", 1, True),
    "memory_1000": ("memory per stream, 1000", "KiB", 1, True),
    "memory_4000": ("memory per stream, 4000", "KiB", 1, True),
    "small_rate": ("firehose, events", "k/s", 0, False),
    "small_cpu": ("firehose, CPU per event", "µs", 2, True),
    "batched_rate": ("in batches, events", "k/s", 0, False),
    "batched_cpu": ("in batches, CPU per event", "µs", 3, True),
    "finishes": ("short answers stored", "1/s", 0, False),
    "stored": ("stored before the finish", "%", 1, False),
    "finish_cpu": ("CPU per short answer", "µs", 0, True),
}
SHOWN = ("exchange_200", "exchange_100", "exchange_20", "paced_cpu", "lag_p50", "lag_p99", "ttfb", "arrive_p50", "arrive_p99",
         "memory_4000", "peak_200", "peak_20", "small_cpu", "batched_cpu")
# Medians of the two client addresses that differ by more than this factor are reported.
APART = 1.1


def summary(results, base, addresses):
    """Returns {figure: {target: {median, min, max, ratio, halves}}}. The ratio is the median of the ratios within each round,
    whose runs are seconds apart. `addresses`: {figure: [client address of each round]}."""
    out = {}
    for figure in FIGURES:
        for target, rounds in results.get(figure, {}).items():
            values = [value for value in rounds if value is not None]
            if not values:
                continue
            cell = {"median": median(values), "min": min(values), "max": max(values), "rounds": rounds}
            pairs = zip(rounds, results[figure].get(base, []))
            ratios = [value / other for value, other in pairs if value is not None and other]
            cell["ratio"] = median(ratios) if ratios else None
            bases = results[figure].get(base, [None] * len(rounds))
            cell["halves"] = {}
            for client in sorted(set(addresses[figure]) - {None}):
                half = [(value, other) for value, other, of in zip(rounds, bases, addresses[figure])
                        if of == client and value is not None]
                ratios = [value / other for value, other in half if other]
                if half:
                    cell["halves"][client] = {"median": median(value for value, _ in half),
                                              "ratio": median(ratios) if ratios else None}
            out.setdefault(figure, {})[target] = cell
    return out


def table(cells, targets):
    """Formats medians and ratios, with the range of the rounds in the line below."""
    rows = [[""] + list(targets)]
    for figure, by_target in cells.items():
        title, unit, digits, _ = FIGURES[figure]
        first, second = [f"{title}, {unit}"], [""]
        for target in targets:
            cell = by_target.get(target)
            if not cell:
                first.append("–")
                second.append("")
                continue
            ratio = f" ×{cell['ratio']:.2f}" if cell["ratio"] is not None else ""
            first.append(f"{cell['median']:.{digits}f}{ratio}")
            several = sum(value is not None for value in cell["rounds"]) > 1
            second.append(f"{cell['min']:.{digits}f}..{cell['max']:.{digits}f}" if several else "")
        rows.append(first)
        if any(second):
            rows.append(second)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(text.ljust(width) if i == 0 else text.rjust(width)
                               for i, (text, width) in enumerate(zip(row, widths))).rstrip() for row in rows)


def apart(cells):
    """Yields a line for each figure that differs with the client address."""
    for figure, by_target in cells.items():
        title, unit, digits, _ = FIGURES[figure]
        for target, cell in by_target.items():
            halves = cell["halves"]
            values = ([half[what] for half in halves.values()] for what in ("median", "ratio"))
            if any(None not in both and max(both) > APART * min(both) for both in values):
                values = ", ".join(f"{client} {half['median']:.{digits}f}" + (f" ×{half['ratio']:.2f}" if half["ratio"] else "")
                                 for client, half in halves.items())
                yield f"{title}, {unit}, {target}: {values}"


COLOURS = {"nginx": "#009e73", "haproxy": "#7f8fa6", "envoy": "#0072b2", "citetap": "#d55e00", "citetap-off": "#cc79a7"}
# Color of builds that --binary names.
OTHER = "#b8860b"
LONGEST = 8
LABELS = {"nginx": "nginx", "haproxy": "HAProxy", "envoy": "Envoy", "citetap": "citetap", "citetap-off": "citetap, tap off"}


def svg(cells, targets, base):
    """Draws each figure as a bar relative to the base. Deterministic: the same table gives the same bytes."""
    targets = [target for target in targets if target != "direct"]
    figures = [figure for figure in SHOWN if base in cells.get(figure, {})]
    left, right, bar, gap, top = 250, 130, 14, 18, 64
    width = 780
    longest = max((cell["ratio"] or 0 for figure in figures for cell in cells[figure].values()), default=1)
    # Cap the scale, so that an outlier does not shrink the other bars.
    longest = min(max(longest, 1), LONGEST)
    scale = (width - left - right) / longest
    parts, y = [], top
    for figure in figures:
        title, unit, digits, _ = FIGURES[figure]
        shown = [target for target in targets if cells[figure].get(target, {}).get("ratio") is not None]
        middle = y + len(shown) * (bar + 3) / 2
        parts.append(f'<text x="{left - 14}" y="{middle:.0f}" text-anchor="end" dominant-baseline="middle">{escape(title)}</text>')
        for target in shown:
            cell = cells[figure][target]
            length = max(min(cell["ratio"], longest) * scale, 1)
            fill = COLOURS.get(target, OTHER)
            # A bar beyond the scale is drawn with a gap.
            pieces = [(0, length)] if cell["ratio"] <= longest else [(0, length - 14), (length - 10, 10)]
            parts += [f'<rect x="{left + x:.1f}" y="{y}" width="{w:.1f}" height="{bar}" rx="2" fill="{fill}"/>' for x, w in pieces]
            label = f"{cell['median']:.{digits}f} {unit}" + ("" if target == base else f"  ×{cell['ratio']:.2f}")
            parts.append(f'<text class="n" x="{left + length + 6:.1f}" y="{y + bar / 2 + 1:.1f}" dominant-baseline="middle">{escape(label)}</text>')
            y += bar + 3
        y += gap
    line = left + scale
    legend, x = [], left
    for target in targets:
        label = LABELS.get(target, target)
        legend.append(f'<rect x="{x}" y="36" width="10" height="10" rx="2" fill="{COLOURS.get(target, OTHER)}"/>'
                      f'<text x="{x + 15}" y="45">{escape(label)}</text>')
        x += 15 + 8 * len(label) + 18
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}" role="img">',
        f"<title>Cost as a multiple of {escape(LABELS.get(base, base))}'s: less is better</title>",
        "<style>text{font:13px system-ui,sans-serif;fill:#24292f}.h{font-weight:600}.n{font-size:12px;fill:#57606a}"
        "line{stroke:#8c959f}@media(prefers-color-scheme:dark){text{fill:#e6edf3}.n{fill:#9198a1}}</style>",
        f'<text class="h" x="{left}" y="20">Cost as a multiple of {escape(LABELS.get(base, base))}\'s: less is better</text>',
        *legend, *parts,
        f'<line x1="{line:.1f}" x2="{line:.1f}" y1="{top - 8}" y2="{y - gap + 4}" stroke-dasharray="2 3"/>',
        "</svg>", ""])
