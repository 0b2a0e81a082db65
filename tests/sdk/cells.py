"""A cell is one client and one answer: the request, and the check of the result against the capture."""

import json
import urllib.request
import uuid
from urllib.parse import quote

import expect
from matrix import (
    BY_ID,
    BY_TASK,
    CELL_TIMEOUT,
    CLIENTS,
    COLUMNS,
    CONTROL,
    DIRECT,
    FAIL_AT_CONTROL,
    NOT_YET,
    Column,
)


class Cell:
    def __init__(self, client, column, route):
        self.client, self.column, self.route = client, column, route
        self.profile = route.headers.get("x-citetap-profile")
        self.name = "/".join(filter(None, [column.key, route.capture, route.server, self.profile]))
        self.task = uuid.uuid4().hex
        self.outcome, self.problems = None, []
        # Problems with the sources that NOT_YET expects.
        self.expected_problems = []
        # The cell with the same client and upstream, but without citetap.
        self.direct = None
        # The client cannot read this upstream without citetap either.
        self.fails_directly = False

    def pending_entry(self):
        """The entry of NOT_YET that covers this cell, or None."""
        name = f"{self.column.key}/{self.route.capture}"
        return next((entry for entry in NOT_YET if name == entry or name.startswith(entry + "/")), None)

    def job(self, bases):
        return {
            "name": self.name,
            "client": self.client.name,
            "dialect": self.route.dialect,
            "base": bases[self.route.server] + self.route.path,
            "headers": {"content-type": "application/json", **self.route.headers},
            "model": self.route.model,
            "whole": self.column.whole,
            "task": self.task,
            # Whether the text has a marker for every source.
            "marked": self.column.key in ("openai", "links") and self.route.capture != "openai",
        }

    def sources(self):
        if self.expected_problems:
            return "not yet"
        if self.fails_directly:
            return "-"
        if self.client.at in (BY_ID, BY_TASK):
            return self.client.at
        return len((self.outcome or {}).get("sources") or [])


def plan(only):
    found = []
    for client in CLIENTS:
        for column in COLUMNS:
            if column.whole and not client.whole:
                continue
            if only not in f"{client.env} {client.script} {client.name} {client.label} {column.key}":
                continue
            routes = [route for route in column.routes if route.dialect in client.speaks]
            found += [Cell(client, column, route) for route in routes if client.headers or not route.headers]
    return found


def control(only):
    clients = [] if only else [client for client in CLIENTS if (client.script, client.name) in FAIL_AT_CONTROL]
    return [Cell(client, CONTROL, route) for client in clients for route in CONTROL.routes]


def direct(cells):
    """Creates the cells without citetap, one per client and upstream, for cells in the upstream's own dialect."""
    found = {}
    for cell in cells:
        capture = cell.route.capture
        if capture in DIRECT and cell.column.key in ("native", "links") and not cell.profile:
            key = (cell.client, capture)
            cell.direct = found.setdefault(key, Cell(cell.client, Column("direct", ()), DIRECT[capture]))
    return list(found.values())


def judge(cell, bases):
    expected = expect.of(cell.route.capture, cell.route.links)
    cell.problems = list(text_problems(cell, expected))
    if cell.direct and list(text_problems(cell.direct, expect.of(cell.route.capture))):
        cell.fails_directly = True
        cell.problems = list(differences(cell.outcome, cell.direct.outcome))
    elif not (cell.outcome or {}).get("error"):
        problems = cell.expected_problems if cell.client.at in NOT_YET else cell.problems
        problems += source_problems(cell, cell.outcome, expected, bases[cell.route.server])


def differences(outcome, other):
    """Yields the differences to the outcome without citetap. If that is an error, it must only have ended in time."""
    if not other or (other["error"] and "did not end in time" in other["error"]):
        yield f"without citetap: {other and other['error']}"
    for what in ("text", "end", "error"):
        if outcome and other and not other["error"] and outcome[what] != other[what]:
            yield f"{what} is {outcome[what]!r}, without citetap {other[what]!r}"


def text_problems(cell, expected):
    outcome = cell.outcome or {"error": "the process ended before this one"}
    if outcome["error"]:
        yield outcome["error"]
        return
    if outcome["text"] != expected.text:
        yield difference(outcome["text"], expected.text)
    if outcome["end"] != "stop":
        yield f"ended with {outcome['end']!r}"
    if not cell.column.whole and outcome["pieces"] < 2:
        yield "the text came in one piece"


def source_problems(cell, outcome, expected, base):
    at, sources = cell.client.at, outcome["sources"]
    if at not in (BY_ID, BY_TASK):
        # citetap sends no annotations if the upstream does, so the client gets the upstream's.
        wanted = cell.direct.outcome["sources"] if expected.annotated else expected.urls
        if sources != wanted:
            yield f"{len(wanted)} sources expected, got {sources}"
        return
    if sources:
        yield "the client now has a field for sources: name it in matrix.py"
    try:
        found = by_id(base, outcome["id"]) if at == BY_ID else by_task(base, cell.task)
    except OSError as error:
        yield f"{at}: {error}"
        return
    # Sources of a task are in the order of the search, not of their numbers.
    if found != (expected.urls if at == BY_ID else sorted(expected.urls)):
        yield f"{len(expected.urls)} sources expected, {at} has {found}"


def difference(text, expected):
    same = (at for at, (a, b) in enumerate(zip(text, expected)) if a != b)
    at = next(same, min(len(text), len(expected)))
    return f"text differs at {at} of {len(expected)}: {text[at : at + 40]!r} for {expected[at : at + 40]!r}"


def by_id(base, message):
    if not message:
        raise OSError("the client gives no message id")
    record = get(f"{base}/citations/{quote(message, safe='')}?wait=5")
    return [source["url"] for source in record["citations"] if source["url"]]


def by_task(base, task):
    bundles = get(f"{base}/tasks/{task}/bundles")["bundles"]
    return sorted({item["url"] for bundle in bundles for item in bundle["results"] if item["url"]})


def get(url):
    with urllib.request.urlopen(url, timeout=CELL_TIMEOUT) as response:
        return json.load(response)
