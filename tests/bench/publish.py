"""Writes the table of the manual's performance page, and `compare.svg`."""

import re

import report
from targets import Broken

MEMORY, RATE = "memory", "rate"
# Figure, title, and format: None shows a multiple of nginx's.
ROWS = (
    ("exchange_200", "CPU per event, {streams} whole exchanges of 200 events", None),
    ("exchange_100", "CPU per event, {streams} whole exchanges of 100 events", None),
    ("paced_cpu", "CPU per event, {streams} open streams with an event every 50 ms", None),
    ("lag_p50", "lag of an event, median", None),
    ("lag_p99", "lag of an event, 99 %", None),
    ("ttfb", "first byte, one stream at a time, median", None),
    ("arrive_p50", "first byte, {streams} streams at once, median", None),
    ("arrive_p99", "first byte, {streams} streams at once, 99 %", None),
    ("memory_4000", "memory per open stream (4,000 of them)", MEMORY),
    ("peak_200", "peak memory per stream, {streams} that finish at once", MEMORY),
    ("small_cpu", "CPU per event, as fast as it goes, one event per write", None),
    ("batched_cpu", "CPU per event, as fast as it goes, 32 KiB per write", None),
    ("finishes", "short answers whose citations are on disk before their finish", RATE),
)
COLUMNS = ("nginx", "haproxy", "envoy", "citetap", "citetap-off")
HEADS = report.LABELS | {"citetap-off": 'citetap, `tap = "off"`'}
PAGE = "docs/src/performance.md"
BEGIN, END = "<!-- compare: made by tests/bench/compare -->", "<!-- compare: end -->"


def missing(cells, base):
    """Returns the figures of the table that were not measured for citetap or the base."""
    return [figure for figure, _, kind in ROWS
            if not {"citetap"} | ({base} if kind != RATE else set()) <= cells.get(figure, {}).keys()]


def cell(figure, kind, value, target, base):
    if not value:
        return ""
    if kind == RATE:
        return f"{value['median']:,.0f} a second"
    _, unit, digits, _ = report.FIGURES[figure]
    if kind == MEMORY or target == base:
        return f"{value['median']:.{digits}f} {unit}"
    return f"×{value['ratio']:.2f}"


def block(document):
    cells, base, machine = document["figures"], document["base"], document["machine"]
    columns = [name for name in COLUMNS if name in cells["exchange_200"]]
    streams, rounds = f"{machine['streams']:,}", machine["rounds"]
    versions = [machine[name] for name in ("nginx", "haproxy", "envoy") if name in columns]
    lines = ["| | " + " | ".join(HEADS[name] for name in columns) + " |", "|---|" + "---|" * len(columns)]
    for figure, title, kind in ROWS:
        values = [cell(figure, kind, cells[figure].get(name), name, base) for name in columns]
        lines.append(f"| {title.format(streams=streams)} | " + " | ".join(values) + " |")
    lines += ["", f"Median of {rounds} rounds, × to nginx in the same round; {machine['cores']} cores that also run the upstream and the "
              f"clients. {', '.join(versions)}."]
    return "\n".join(lines)


def write(root, document, picture):
    if lacking := missing(document["figures"], document["base"]):
        raise Broken(f"--write needs all figures of the table; not measured: {', '.join(lacking)}")
    page = root / PAGE
    text, count = re.subn(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: f"{BEGIN}\n\n{block(document)}\n\n{END}",
                          page.read_text(), flags=re.S)
    if count != 1:
        raise Broken(f"{PAGE} has no place for the table")
    page.write_text(text)
    (root / "tests" / "bench" / "compare.svg").write_text(picture)
