"""The compatibility table of the two README files, from what a run saw."""

import re

from expect import ROOT
from matrix import CLIENTS, COLUMNS, NOT_YET

BEGIN, END = "<!-- clients: made by tests/sdk/run -->", "<!-- clients: end -->"

HEADS = {
    "README.md": {"client": "client", "at": "sources in", "links": "`link`", "v1": "`/v1`", "v1-whole": "`/v1`, whole"},
    "README.zh-CN.md": {"client": "客户端", "at": "来源在", "links": "`link`", "v1": "`/v1`", "v1-whole": "`/v1`，非流式"},
}

CHINESE = {
    "like Open WebUI's backend (aiohttp ": "仿 Open WebUI 后端（aiohttp ",
    "Python, `data:` lines only": "Python，只读 `data:` 行",
    "`source-url` parts": "`source-url` 部分",
    "`source` events, ": "`source` 事件、",
    "`citations` event": "`citations` 事件",
    "`citations` key": "`citations` 键",
    " (its `AbstractChat`)": "（即 `AbstractChat`）",
    "`EventSource` (": "`EventSource`（",
    ") |": "） |",
    ", ": "，",
}


def label(cell):
    versions = (cell.outcome or {}).get("versions", {})
    return re.sub(r"\{([^}:]+)\}", lambda name: versions.get(name[1], "?"), cell.client.label)


def made(cells):
    """By file. A column in which nothing works yet is left out."""
    columns = [column for column in COLUMNS if any(cell.column is column and not cell.problems for cell in cells)]
    return {name: one(cells, columns, name) for name in HEADS}


def one(cells, columns, name):
    heads = HEADS[name]
    names = [heads.get(column.key, f"`{column.key}`") for column in columns]
    lines = [row([heads["client"], *names, heads["at"]]), "|---" * (len(columns) + 2) + "|"]
    for each in CLIENTS:
        mine = [cell for cell in cells if cell.client is each]
        marks = [mark([cell for cell in mine if cell.column is column]) for column in columns]
        if any(marks):
            line = row([label(mine[0]), *marks, "" if each.at in NOT_YET else each.at])
            lines.append(in_chinese(line) if name == "README.zh-CN.md" else line)
    return "\n".join(lines)


def in_chinese(line):
    for english, chinese in CHINESE.items():
        line = line.replace(english, chinese)
    return line


def mark(cells):
    cells = [cell for cell in cells if not cell.own_fault and not (cell.problems and cell.later())]
    if not cells:
        return ""
    return "✗" if any(cell.problems for cell in cells) else "✓"


def row(parts):
    return "| " + " | ".join(parts) + " |"


def block(text):
    return f"{BEGIN}\n\n{text}\n\n{END}"


def write(tables):
    rule = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.S)
    for name, text in tables.items():
        page = ROOT / name
        pages, count = rule.subn(lambda _: block(text), page.read_text(encoding="utf-8"))
        if count != 1:
            raise SystemExit(f"{name} has no place for the table, which is between {BEGIN} and {END}")
        page.write_text(pages, encoding="utf-8")
        print(f"{name} written")


def differing(tables):
    """How many of the pages say something else."""
    stale = [name for name, text in tables.items() if block(text) not in (ROOT / name).read_text(encoding="utf-8")]
    for name in stale:
        print(f"{name} has another table: run tests/sdk/run --write")
    return len(stale)
