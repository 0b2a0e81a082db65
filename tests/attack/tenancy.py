"""Tenants: with B's key, A's ids are as unknown as ids that nobody has."""

import asyncio
import hashlib
import json
import statistics
import time

from kit import Tenant, attack, require, route
from upstreams import STREAM_HEAD, Upstream, chunk, finish, references, text
from wire import Connection, ask, request

ROUNDS = 25
# Path, body for each call of the API. M is a message, T a task, C a consumer. A call that is not here fails the case.
CALLS = {
    ("GET", "/citations/{messageId}"): (
        "/citations/M",
        "/citations/M?provider=tencent",
        "/citations/M?format=markdown",
        "/citations/M?format=csv",
        "/citations/M?format=bundle",
        "/citations/M?wait=0.05",
    ),
    ("DELETE", "/citations/{messageId}"): ("/citations/M", "/citations/M?provider=tencent"),
    ("GET", "/citations/{messageId}/events"): ("/citations/M/events",),
    ("GET", "/tasks/{taskId}/bundles"): ("/tasks/T/bundles", "/tasks/T/bundles?limit=1"),
    ("GET", "/tasks/{taskId}/results"): ("/tasks/T/results", "/tasks/T/results?consumer=C&limit=1"),
    ("GET", "/tasks/{taskId}/cursors/{consumer}"): ("/tasks/T/cursors/C",),
    ("PUT", "/tasks/{taskId}/cursors/{consumer}"): ("/tasks/T/cursors/C",),
    ("POST", "/render"): ("/render",),
}
# Lists and totals, which have only the asker's own, and calls that hold nobody's data.
LISTS = {
    ("GET", "/citations"): (
        "/citations",
        "/citations?limit=1",
        "/citations?q=%E8%B5%84%E6%96%99",
        "/citations?conversation=s-1",
    ),
    ("GET", "/stats"): ("/stats", "/stats?top=5"),
    ("GET", "/console/status"): ("/console/status",),
    ("GET", "/console/routes"): ("/console/routes",),
}
OF_ALL = {("POST", "/normalize"), ("POST", "/search")}
BODIES = {
    "/render": {"text": "a [1]", "messageId": "M"},
    "/cursors/": {"task_id": "T", "last_query_id": "", "last_source_id": "", "consumed_count": 0, "consumed": []},
}


def filled(text, message, task, consumer="c-1"):
    for before, after in (("/M", f"/{message}"), ("/T/", f"/{task}/"), ("/C", f"/{consumer}"), ("=C", f"={consumer}")):
        text = text.replace(before, after)
    return text


def body_for(path, message, task):
    for part, document in BODIES.items():
        if part in path:
            return json.dumps(document).replace('"M"', f'"{message}"').replace('"T"', f'"{task}"').encode()
    return b"{}"


async def told(server, method, path, body, headers, connection=None):
    """Status, headers and body, without what every answer has anew."""
    sent = [*headers, ("Content-Type", "application/json")]
    data = request(method, path, sent, body if method in ("POST", "PUT") else None)
    if connection:
        await connection.send(data)
        answer = await connection.answer(method)
    else:
        async with await Connection.open(server) as own:
            await own.send(data)
            answer = await own.answer(method)
    kept = sorted((name, value) for name, value in answer.headers if name not in ("date", "etag"))
    return answer.status, kept, answer.body


async def stream(received, writer):
    """An answer of the Tencent dialect for the message that the path names, in the conversation s-1."""
    ident = received.path.rsplit("/", 1)[-1]
    said = (
        references(ident).replace('{"completion_id"', '{"session_id": "s-1", "completion_id"')
        + text(ident, "[1]")
        + finish(ident)
    )
    writer.write(STREAM_HEAD + chunk(said) + b"0\r\n\r\n")


async def alpha_asks(server, alpha):
    """Messages, a task and a cursor of A's."""
    for ident in ("a-1", "a-2"):
        answer = await ask(server, "POST", f"/l0/{ident}", [*alpha.headers, ("x-task-id", "t-1")], b"{}")
        require(answer.status == 200 and b'"stored":true' in answer.body, f"not stored: {answer.status} {answer.text[-300:]}")
    answer = await ask(server, "GET", "/tasks/t-1/results?consumer=c-1&limit=1", alpha.headers)
    require(answer.status == 200, f"results {answer.status}")
    body = json.dumps(answer.json()["cursor"]).encode()
    answer = await ask(server, "PUT", "/tasks/t-1/cursors/c-1", [*alpha.headers, ("Content-Type", "application/json")], body)
    require(answer.status == 200, f"cursor {answer.status} {answer.text[:100]}")


async def isolated(server, alpha, beta, others=()):
    """Every call, by B and through every replica. Gives how many were compared."""
    document = (await ask(server, "GET", "/openapi.json")).json()
    private = {
        (method.upper(), path)
        for path, item in document["paths"].items()
        for method, call in item.items()
        if call.get("security")
    }
    unknown = private - set(CALLS) - set(LISTS) - OF_ALL
    require(not unknown, f"calls that this kit does not know: {sorted(unknown)}")
    before = {}
    for paths in LISTS.values():
        for path in paths:
            before[path] = await told(server, "GET", path, b"", beta.headers)
    await alpha_asks(server, alpha)
    compared = 0
    for asked in (server, *others):
        for (method, _), paths in CALLS.items():
            for path in paths:
                theirs = await told(asked, method, filled(path, "a-1", "t-1"), body_for(path, "a-1", "t-1"), beta.headers)
                nobodys = await told(asked, method, filled(path, "z-9", "t-9"), body_for(path, "z-9", "t-9"), beta.headers)
                require(
                    theirs[0] == 404 and theirs == nobodys, f"{method} {path}: {theirs} for another's, {nobodys} for nobody's"
                )
                keyless = await told(asked, method, filled(path, "a-1", "t-1"), body_for(path, "a-1", "t-1"), [])
                require(keyless[0] == 401, f"{method} {path} without a key: {keyless[0]}")
                compared += 1
        for path, expected in before.items():
            now = await told(asked, "GET", path, b"", beta.headers)
            if path == "/console/status":
                require(b"a-1" not in now[2], "the console's status names another's message")
            else:
                require(now[0] == 200 and now[2] == expected[2], f"{path} changed for B when A asked: {now[2][:200]!r}")
            compared += 1
    answer = await ask(server, "GET", "/citations/a-1", alpha.headers)
    require(answer.status == 200 and answer.json()["citations"], f"A lost its record: {answer.status}")
    return compared


@attack("404 as for ids that nobody has, byte for byte; 401 without a key")
async def ids_of_another_tenant_in_every_call(kit):
    """Walks through /openapi.json with B's key and A's ids, in the memory and the SQLite store."""
    total = 0
    for store in ("memory:", "sqlite:c.db"):
        alpha, beta = Tenant("alpha"), Tenant("beta")
        async with Upstream(stream) as upstream, kit.citetap(
            route("l0", upstream.port) + alpha.toml + beta.toml, store=store
        ) as server:
            total += await isolated(server, alpha, beta)
    return f"{total} calls alike"


@attack("similar times")
async def time_of_another_tenants_ids(kit):
    """Measures whether a refusal takes longer for an id that somebody has."""
    alpha, beta = Tenant("alpha"), Tenant("beta")
    slow = []
    async with Upstream(stream) as upstream, kit.citetap(
        route("l0", upstream.port) + alpha.toml + beta.toml, store="sqlite:c.db"
    ) as server:
        await alpha_asks(server, alpha)
        async with await Connection.open(server) as connection:
            for (method, _), paths in CALLS.items():
                # A busy machine gives wild times now and then, not three times in a row.
                for attempt in range(3):
                    times = ([], [])
                    for number in range(kit.few(ROUNDS, 4 * ROUNDS) * 2):
                        message, task = (("a-1", "t-1"), ("z-9", "t-9"))[number % 2]
                        began = time.perf_counter()
                        await told(
                            server,
                            method,
                            filled(paths[0], message, task),
                            body_for(paths[0], message, task),
                            beta.headers,
                            connection,
                        )
                        times[number % 2].append(time.perf_counter() - began)
                    theirs, nobodys = map(statistics.median, times)
                    apart = abs(theirs - nobodys)
                    if apart < max(theirs, nobodys) / 2 + 0.001:
                        break
                else:
                    slow.append(f"{method} {paths[0]}: {theirs * 1e3:.2f} and {nobodys * 1e3:.2f} ms")
    require(not slow, "; ".join(slow))
    return f"{len(CALLS)} calls take the same time"


@attack("401 for each, with one and the same body")
async def keys_that_are_nearly_right(kit):
    """Tries prefixes, other cases, hashes, blanks, lists and names for keys."""
    alpha = Tenant("alpha")
    wrong = [
        alpha.key[:-1],
        alpha.key + "x",
        alpha.key.upper(),
        alpha.name,
        hashlib.sha256(alpha.key.encode()).hexdigest(),
        "",
        " ",
        f"{alpha.key}, x",
        f"x, {alpha.key}",
        f"{alpha.key} {alpha.key}",
        "*",
        "null",
        "' OR 1=1 --",
        "x" * 8000,
    ]
    async with Upstream(stream) as upstream, kit.citetap(route("l0", upstream.port) + alpha.toml) as server:
        seen = set()
        for key in wrong:
            for headers in ([("x-citetap-key", key)], [("Authorization", f"Bearer {key}")]):
                status, _, body = await told(server, "GET", "/citations", b"", headers)
                require(status == 401, f"{headers[0][0]} {key[:30]!r}: {status}")
                seen.add(body)
        require(len(seen) == 1, f"{len(seen)} different refusals")
        # The key of the header counts, not a right one elsewhere.
        status, _, _ = await told(
            server, "GET", "/citations", b"", [("x-citetap-key", "wrong"), ("Authorization", f"Bearer {alpha.key}")]
        )
        require(status == 401, f"a wrong key beside a right one: {status}")
        require(not upstream.received, "something was relayed")
    return f"{2 * len(wrong) + 1} times 401"


@attack("each reads its own")
async def same_ids_in_two_tenants(kit):
    """Both tenants have a message, a task and a consumer of the same names; one deletes and reads on."""
    alpha, beta = Tenant("alpha"), Tenant("beta")
    async with Upstream(stream) as upstream, kit.citetap(
        route("l0", upstream.port) + alpha.toml + beta.toml, store="sqlite:c.db"
    ) as server:
        await alpha_asks(server, alpha)
        await alpha_asks(server, beta)
        require((await ask(server, "DELETE", "/citations/a-1", beta.headers)).status == 204, "B cannot delete its own")
        got = [
            (await ask(server, "GET", path, who.headers)).status
            for who in (alpha, beta)
            for path in ("/citations/a-1", "/citations/a-2", "/tasks/t-1/cursors/c-1")
        ]
        require(got == [200, 200, 200, 404, 200, 200], f"{got}")
    return "B's deletion left A's"


@attack("A's stream is not seen")
async def message_of_another_tenant_in_flight(kit):
    """Waits for and watches A's message while it streams, with B's key."""
    hold = asyncio.Event()

    async def slow(received, writer):
        writer.write(STREAM_HEAD + chunk(references("f-1")))
        await writer.drain()
        await hold.wait()
        writer.write(chunk(finish("f-1")) + b"0\r\n\r\n")

    alpha, beta = Tenant("alpha"), Tenant("beta")
    async with Upstream(slow) as upstream, kit.citetap(route("l0", upstream.port) + alpha.toml + beta.toml) as server:
        asking = asyncio.create_task(ask(server, "POST", "/l0/f-1", alpha.headers, b"{}"))
        for _ in range(200):
            if (await ask(server, "GET", "/citations/f-1?wait=0.1", alpha.headers)).status == 200 or upstream.received:
                break
        await asyncio.sleep(0.1)
        for path in ("/citations/f-1", "/citations/f-1?wait=0.2", "/citations/f-1/events"):
            status, headers, body = await told(server, "GET", path, b"", beta.headers)
            require(
                (status, headers, body) == await told(server, "GET", path.replace("f-1", "g-9"), b"", beta.headers)
                and status == 404,
                f"{path}: {status}",
            )
        hold.set()
        require(b'"stored":true' in (await asking).body, "A's own stream failed")
    return "404 as for others"
