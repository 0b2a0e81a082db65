"""The tables in README.md and README.zh-CN.md, and the picture beside them."""

import re

import report
from targets import Broken

MEMORY, RATE = "memory", "rate"
# Figure, what it is in English and in Chinese, and how it is told: as multiples of nginx's, or as values.
ROWS = (
    ("exchange_200", "CPU per event, {streams} whole exchanges of 200 events", "每个事件的 CPU，{streams} 次完整问答，各 200 个事件", None),
    ("exchange_100", "CPU per event, {streams} whole exchanges of 100 events", "每个事件的 CPU，{streams} 次完整问答，各 100 个事件", None),
    ("paced_cpu", "CPU per event, {streams} open streams with an event every 50 ms", "每个事件的 CPU，{streams} 条已打开的流，每 50 ms 一个事件", None),
    ("lag_p50", "lag of an event, median", "事件的延迟，中位数", None),
    ("lag_p99", "lag of an event, 99 %", "事件的延迟，99 %", None),
    ("ttfb", "first byte, one stream at a time, median", "首字节，一次一条流，中位数", None),
    ("arrive_p50", "first byte, {streams} streams at once, median", "首字节，{streams} 条流同时到达，中位数", None),
    ("arrive_p99", "first byte, {streams} streams at once, 99 %", "首字节，{streams} 条流同时到达，99 %", None),
    ("memory_4000", "memory per open stream (4,000 of them)", "每条打开的流占用的内存（4,000 条时）", MEMORY),
    ("peak_200", "peak memory per stream, {streams} that finish at once", "每条流的内存峰值，{streams} 条同时结束", MEMORY),
    ("small_cpu", "CPU per event, as fast as it goes, one event per write", "每个事件的 CPU，全速，每次写一个事件", None),
    ("batched_cpu", "CPU per event, as fast as it goes, 32 KiB per write", "每个事件的 CPU，全速，每次写 32 KiB", None),
    ("finishes", "short answers whose citations are on disk before their finish", "结束前引用已落盘的短回答", RATE),
)
COLUMNS = ("nginx", "haproxy", "envoy", "citetap", "citetap-off")
HEADS = (report.LABELS | {"citetap-off": 'citetap, `tap = "off"`'}, report.LABELS | {"citetap-off": 'citetap，`tap = "off"`'})
PAGES = ("README.md", "README.zh-CN.md")
BEGIN, END = "<!-- compare: made by tests/bench/compare -->", "<!-- compare: end -->"


def missing(cells, base):
    """Figures that the tables need and that were not measured, of citetap or of what it is held against."""
    return [figure for figure, *_, kind in ROWS
            if not {"citetap"} | ({base} if kind != RATE else set()) <= cells.get(figure, {}).keys()]


def cell(figure, kind, at, target, base, chinese):
    if not at:
        return ""
    if kind == RATE:
        return f"每秒 {at['median']:,.0f} 个" if chinese else f"{at['median']:,.0f} a second"
    _, unit, digits, _ = report.FIGURES[figure]
    if kind == MEMORY or target == base:
        return f"{at['median']:.{digits}f} {unit}"
    return f"×{at['ratio']:.2f}"


def block(told, chinese):
    cells, base, machine = told["figures"], told["base"], told["machine"]
    columns = [name for name in COLUMNS if name in cells["exchange_200"]]
    streams, rounds = f"{machine['streams']:,}", machine["rounds"]
    versions = [machine[name] for name in ("nginx", "haproxy", "envoy") if name in columns]
    lines = ["| | " + " | ".join(HEADS[chinese][name] for name in columns) + " |", "|---|" + "---|" * len(columns)]
    for figure, *titles, kind in ROWS:
        values = [cell(figure, kind, cells[figure].get(name), name, base, chinese) for name in columns]
        lines.append(f"| {titles[chinese].format(streams=streams)} | " + " | ".join(values) + " |")
    if chinese:
        lines += ["", f"{rounds} 轮的中位数，× 是同一轮里相对 nginx 的倍数；{machine['cores']} 个核同时还运行上游和客户端。{'、'.join(versions)}。"]
    else:
        lines += ["", f"Median of {rounds} rounds, × to nginx in the same round; {machine['cores']} cores that also run the upstream and the "
                  f"clients. {', '.join(versions)}."]
    return "\n".join(lines)


def write(root, told, picture):
    if lacking := missing(told["figures"], told["base"]):
        raise Broken(f"--write needs all figures of the tables; not measured: {', '.join(lacking)}")
    for chinese, name in enumerate(PAGES):
        page = root / name
        text, count = re.subn(re.escape(BEGIN) + ".*?" + re.escape(END), lambda _: f"{BEGIN}\n\n{block(told, chinese)}\n\n{END}",
                              page.read_text(), flags=re.S)
        if count != 1:
            raise Broken(f"{name} has no place for the table")
        page.write_text(text)
    (root / "tests" / "bench" / "compare.svg").write_text(picture)
