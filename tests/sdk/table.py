"""Makes the compatibility table of the manual from the outcomes of a run."""

import re

from expect import ROOT
from matrix import CLIENTS, COLUMNS, NOT_YET

BEGIN, END = "<!-- clients: made by tests/sdk/run -->", "<!-- clients: end -->"

PAGE = "docs/src/openai.md"
HEADS = {"links": "`link`", "v1": "`/v1`", "v1-whole": "`/v1`, whole"}


def label(cell):
    versions = (cell.outcome or {}).get("versions", {})
    return re.sub(r"\{([^}:]+)\}", lambda name: versions.get(name[1], "?"), cell.client.label)


def build_table(cells):
    """Builds the table; leaves out columns in which no cell passes."""
    columns = [column for column in COLUMNS if any(cell.column is column and not cell.problems for cell in cells)]
    names = [HEADS.get(column.key, f"`{column.key}`") for column in columns]
    lines = [row(["client", *names, "sources in"]), "|---" * (len(columns) + 2) + "|"]
    for each in CLIENTS:
        mine = [cell for cell in cells if cell.client is each]
        marks = [mark([cell for cell in mine if cell.column is column]) for column in columns]
        if any(marks):
            lines.append(row([label(mine[0]), *marks, "" if each.at in NOT_YET else each.at]))
    return "\n".join(lines)


def mark(cells):
    cells = [cell for cell in cells if not cell.fails_directly and not (cell.problems and cell.pending_entry())]
    if not cells:
        return ""
    return "✗" if any(cell.problems for cell in cells) else "✓"


def row(parts):
    return "| " + " | ".join(parts) + " |"


def block(text):
    return f"{BEGIN}\n\n{text}\n\n{END}"


def write(text):
    page = ROOT / PAGE
    rule = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.S)
    pages, count = rule.subn(lambda _: block(text), page.read_text(encoding="utf-8"))
    if count != 1:
        raise SystemExit(f"{PAGE} lacks the lines {BEGIN} and {END} around the table")
    page.write_text(pages, encoding="utf-8")
    print(f"{PAGE} written")


def differs(text):
    """True if the page has another table."""
    if block(text) in (ROOT / PAGE).read_text(encoding="utf-8"):
        return False
    print(f"{PAGE} has another table: run tests/sdk/run --write")
    return True
