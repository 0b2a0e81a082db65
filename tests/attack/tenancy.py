"""Tenant isolation: with B's key, A's ids are answered exactly as unknown ids."""

import asyncio
import hashlib
import json
import statistics
import time

from kit import Tenant, attack, require, route
from upstreams import STREAM_HEAD, Upstream, chunk, finish, references, text
from wire import Connection, ask, request

ROUNDS = 25
# Endpoint: paths to request. M is a message, T a task, C a consumer. An endpoint that is missing here fails the case.
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
# Lists and totals, which contain only the caller's own data, and endpoints that have no tenant's data (`OF_ALL`).
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


def fill(text, message, task, consumer="c-1"):
    for before, after in (("/M", f"/{message}"), ("/T/", f"/{task}/"), ("/C", f"/{consumer}"), ("=C", f"={consumer}")):
        text = text.replace(before, after)
    return text


def body_for(path, message, task):
    for part, document in BODIES.items():
        if part in path:
            return json.dumps(document).replace('"M"', f'"{message}"').replace('"T"', f'"{task}"').encode()
    return b"{}"


async def fetch(server, method, path, body, headers, connection=None):
    """Requests a path; returns status, headers and body, without the headers that differ in every response."""
    sent = [*headers, ("Content-Type", "application/json")]
    data = request(method, path, sent, body if method in ("POST", "PUT") else None)
    if connection:
        await connection.send(data)
        response = await connection.response(method)
    else:
        async with await Connection.open(server) as own:
            await own.send(data)
            response = await own.response(method)
    kept = sorted((name, value) for name, value in response.headers if name not in ("date", "etag"))
    return response.status, kept, response.body


async def stream(received, writer):
    """Sends a stream of the Tencent dialect for the message that the path names, in the conversation s-1."""
    ident = received.path.rsplit("/", 1)[-1]
    frames = (
        references(ident).replace('{"completion_id"', '{"session_id": "s-1", "completion_id"')
        + text(ident, "[1]")
        + finish(ident)
    )
    writer.write(STREAM_HEAD + chunk(frames) + b"0\r\n\r\n")


async def create_alpha_data(server, alpha):
    """Creates two messages, a task and a cursor that belong to A."""
    for ident in ("a-1", "a-2"):
        response = await ask(server, "POST", f"/l0/{ident}", [*alpha.headers, ("x-task-id", "t-1")], b"{}")
        require(
            response.status == 200 and b'"stored":true' in response.body,
            f"not stored: {response.status} {response.text[-300:]}",
        )
    response = await ask(server, "GET", "/tasks/t-1/results?consumer=c-1&limit=1", alpha.headers)
    require(response.status == 200, f"results {response.status}")
    body = json.dumps(response.json()["cursor"]).encode()
    response = await ask(server, "PUT", "/tasks/t-1/cursors/c-1", [*alpha.headers, ("Content-Type", "application/json")], body)
    require(response.status == 200, f"cursor {response.status} {response.text[:100]}")


async def isolated(server, alpha, beta, others=()):
    """Compares every call with B's key through every replica; returns how many were compared."""
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
            before[path] = await fetch(server, "GET", path, b"", beta.headers)
    await create_alpha_data(server, alpha)
    compared = 0
    for replica in (server, *others):
        for (method, _), paths in CALLS.items():
            for path in paths:
                existing = await fetch(replica, method, fill(path, "a-1", "t-1"), body_for(path, "a-1", "t-1"), beta.headers)
                unknown_id = await fetch(replica, method, fill(path, "z-9", "t-9"), body_for(path, "z-9", "t-9"), beta.headers)
                require(
                    existing[0] == 404 and existing == unknown_id,
                    f"{method} {path}: {existing} for A's id, {unknown_id} for an unknown id",
                )
                keyless = await fetch(replica, method, fill(path, "a-1", "t-1"), body_for(path, "a-1", "t-1"), [])
                require(keyless[0] == 401, f"{method} {path} without a key: {keyless[0]}")
                compared += 1
        for path, expected in before.items():
            now = await fetch(replica, "GET", path, b"", beta.headers)
            if path == "/console/status":
                require(b"a-1" not in now[2], "the console's status names another's message")
            else:
                require(now[0] == 200 and now[2] == expected[2], f"{path} changed for B after A's requests: {now[2][:200]!r}")
            compared += 1
    response = await ask(server, "GET", "/citations/a-1", alpha.headers)
    require(response.status == 200 and response.json()["citations"], f"A lost its record: {response.status}")
    return compared


@attack("404 as for unknown ids, byte for byte; 401 without a key")
async def ids_of_another_tenant_in_every_call(kit):
    """Makes every call of /openapi.json with B's key and A's ids, on the memory and the SQLite store."""
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
    """Measures whether a refusal takes longer for an id that exists."""
    alpha, beta = Tenant("alpha"), Tenant("beta")
    slow = []
    async with Upstream(stream) as upstream, kit.citetap(
        route("l0", upstream.port) + alpha.toml + beta.toml, store="sqlite:c.db"
    ) as server:
        await create_alpha_data(server, alpha)
        async with await Connection.open(server) as connection:
            for (method, _), paths in CALLS.items():
                # A busy machine distorts single measurements, so a call fails only if three attempts differ.
                for attempt in range(3):
                    times = ([], [])
                    for number in range(kit.few(ROUNDS, 4 * ROUNDS) * 2):
                        message, task = (("a-1", "t-1"), ("z-9", "t-9"))[number % 2]
                        began = time.perf_counter()
                        await fetch(
                            server,
                            method,
                            fill(paths[0], message, task),
                            body_for(paths[0], message, task),
                            beta.headers,
                            connection,
                        )
                        times[number % 2].append(time.perf_counter() - began)
                    existing, unknown_id = map(statistics.median, times)
                    apart = abs(existing - unknown_id)
                    if apart < max(existing, unknown_id) / 2 + 0.001:
                        break
                else:
                    slow.append(f"{method} {paths[0]}: {existing * 1e3:.2f} and {unknown_id * 1e3:.2f} ms")
    require(not slow, "; ".join(slow))
    return f"{len(CALLS)} calls take the same time"


@attack("401 for each, with the same body")
async def keys_that_are_nearly_right(kit):
    """Tries prefixes, other case, hashes, blanks, lists and names as keys."""
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
                status, _, body = await fetch(server, "GET", "/citations", b"", headers)
                require(status == 401, f"{headers[0][0]} {key[:30]!r}: {status}")
                seen.add(body)
        require(len(seen) == 1, f"{len(seen)} different refusals")
        # x-citetap-key takes precedence over a valid key in another header.
        status, _, _ = await fetch(
            server, "GET", "/citations", b"", [("x-citetap-key", "wrong"), ("Authorization", f"Bearer {alpha.key}")]
        )
        require(status == 401, f"a wrong key beside a right one: {status}")
        require(not upstream.received, "something was relayed")
    return f"{2 * len(wrong) + 1} times 401"


@attack("each reads its own")
async def same_ids_in_two_tenants(kit):
    """Gives both tenants the same ids of message, task and consumer; B deletes its own."""
    alpha, beta = Tenant("alpha"), Tenant("beta")
    async with Upstream(stream) as upstream, kit.citetap(
        route("l0", upstream.port) + alpha.toml + beta.toml, store="sqlite:c.db"
    ) as server:
        await create_alpha_data(server, alpha)
        await create_alpha_data(server, beta)
        require((await ask(server, "DELETE", "/citations/a-1", beta.headers)).status == 204, "B cannot delete its own")
        got = [
            (await ask(server, "GET", path, who.headers)).status
            for who in (alpha, beta)
            for path in ("/citations/a-1", "/citations/a-2", "/tasks/t-1/cursors/c-1")
        ]
        require(got == [200, 200, 200, 404, 200, 200], f"{got}")
    return "B's deletion left A's"


@attack("404 as for unknown ids")
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
        streaming = asyncio.create_task(ask(server, "POST", "/l0/f-1", alpha.headers, b"{}"))
        for _ in range(200):
            if (await ask(server, "GET", "/citations/f-1?wait=0.1", alpha.headers)).status == 200 or upstream.received:
                break
        await asyncio.sleep(0.1)
        for path in ("/citations/f-1", "/citations/f-1?wait=0.2", "/citations/f-1/events"):
            status, headers, body = await fetch(server, "GET", path, b"", beta.headers)
            require(
                (status, headers, body) == await fetch(server, "GET", path.replace("f-1", "g-9"), b"", beta.headers)
                and status == 404,
                f"{path}: {status}",
            )
        hold.set()
        require(b'"stored":true' in (await streaming).body, "A's own stream failed")
    return "404 as for unknown ids"
