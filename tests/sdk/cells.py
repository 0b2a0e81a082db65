"""A cell is one client and one answer: what is asked, and whether what came is what the capture has."""

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
        # What is wrong with its sources while the way to them is not there yet.
        self.waiting = []
        # The same client and upstream without citetap.
        self.direct = None
        # It cannot read this upstream without citetap either.
        self.own_fault = False

    def later(self):
        """The entry of NOT_YET that it waits for, if there is one."""
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
            # Whether every source is marked in the text, by its number.
            "marked": self.column.key in ("openai", "links") and self.route.capture != "openai",
        }

    def sources(self):
        if self.waiting:
            return "not yet"
        if self.own_fault:
            return "-"
        if self.client.at in (BY_ID, BY_TASK):
            return self.client.at
        return len((self.outcome or {}).get("sources") or [])


def planned(only):
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
    """The counterparts, once for each client and upstream, of those that are relayed in the upstream's dialect."""
    found = {}
    for cell in cells:
        capture = cell.route.capture
        if capture in DIRECT and cell.column.key in ("native", "links") and not cell.profile:
            key = (cell.client, capture)
            cell.direct = found.setdefault(key, Cell(cell.client, Column("direct", ()), DIRECT[capture]))
    return list(found.values())


def judge(cell, bases):
    expected = expect.of(cell.route.capture, cell.route.links)
    cell.problems = list(of_the_text(cell, expected))
    if cell.direct and list(of_the_text(cell.direct, expect.of(cell.route.capture))):
        cell.own_fault = True
        cell.problems = list(unlike(cell.outcome, cell.direct.outcome))
    elif not (cell.outcome or {}).get("error"):
        later = cell.waiting if cell.client.at in NOT_YET else cell.problems
        later += of_the_sources(cell, cell.outcome, expected, bases[cell.route.server])


def unlike(outcome, other):
    """Where it ends in an error without citetap, there is nothing to be like; in time it must end."""
    if not other or (other["error"] and "did not end in time" in other["error"]):
        yield f"without citetap: {other and other['error']}"
    for what in ("text", "end", "error"):
        if outcome and other and not other["error"] and outcome[what] != other[what]:
            yield f"{what} is {outcome[what]!r}, without citetap {other[what]!r}"


def of_the_text(cell, expected):
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


def of_the_sources(cell, outcome, expected, base):
    at, sources = cell.client.at, outcome["sources"]
    if at not in (BY_ID, BY_TASK):
        # Where the upstream has annotations, ours are not sent, and the client has what it has of them.
        wanted = cell.direct.outcome["sources"] if expected.annotated else expected.urls
        if sources != wanted:
            yield f"{len(wanted)} sources expected, got {sources}"
        return
    if sources:
        yield "it has a place for sources now: say where in matrix.py"
    try:
        found = by_id(base, outcome["id"]) if at == BY_ID else by_task(base, cell.task)
    except OSError as error:
        yield f"{at}: {error}"
        return
    # A task's are in the order of their search, not of their numbers.
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
