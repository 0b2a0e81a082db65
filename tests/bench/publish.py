"""The table of the manual's page on performance, and the picture beside it."""

import re

import report
from targets import Broken

MEMORY, RATE = "memory", "rate"
# Figure, its title, and how it is shown: as a multiple of nginx's, or as a value.
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
    """Figures that the tables need and that were not measured, of citetap or of its base."""
    return [figure for figure, _, kind in ROWS
            if not {"citetap"} | ({base} if kind != RATE else set()) <= cells.get(figure, {}).keys()]


def cell(figure, kind, at, target, base):
    if not at:
        return ""
    if kind == RATE:
        return f"{at['median']:,.0f} a second"
    _, unit, digits, _ = report.FIGURES[figure]
    if kind == MEMORY or target == base:
        return f"{at['median']:.{digits}f} {unit}"
    return f"×{at['ratio']:.2f}"


def block(told):
    cells, base, machine = told["figures"], told["base"], told["machine"]
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


def write(root, told, picture):
    if lacking := missing(told["figures"], told["base"]):
        raise Broken(f"--write needs all figures of the table; not measured: {', '.join(lacking)}")
    page = root / PAGE
    text, count = re.subn(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: f"{BEGIN}\n\n{block(told)}\n\n{END}",
                          page.read_text(), flags=re.S)
    if count != 1:
        raise Broken(f"{PAGE} has no place for the table")
    page.write_text(text)
    (root / "tests" / "bench" / "compare.svg").write_text(picture)
