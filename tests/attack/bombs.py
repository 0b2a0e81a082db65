"""Bombs: small inputs that are expensive to parse, and endless ones. Memory stays bounded and /healthz answers."""

import asyncio
import contextlib
import gzip
import json
import time

from kit import MIB, attack, body_of, mib, require, route
from upstreams import STREAM_HEAD, Upstream, chunk, finish, references, text, with_length
from wire import Connection, Malformed, ask, raw, request, status_of

# Limit of the memory growth per bomb: the frame limit, its parsed form, and slack for an unoptimized build.
GROWTH = 64 * MIB
# Seconds that /healthz may take while an unoptimized build parses a frame of megabytes on the same core.
HEALTH = 5


@contextlib.asynccontextmanager
async def watched(server, name, growth=GROWTH):
    """Checks that /healthz answers within `HEALTH` and resident memory grows by less than `growth` while the block runs."""
    before = server.rss()
    server.forget_peak()
    slowest, done = 0.0, False

    async def probe():
        nonlocal slowest
        while not done:
            began = time.monotonic()
            response = await ask(server, "GET", "/healthz", timeout=10)
            require(response.status == 200, f"{name}: /healthz answered {response.status}")
            slowest = max(slowest, time.monotonic() - began)
            await asyncio.sleep(0.1)

    probing = asyncio.create_task(probe())
    try:
        yield
    finally:
        done = True
        await probing
    grown = server.peak() - before
    require(grown < growth, f"{name}: memory grew by {mib(grown)}")
    require(slowest < HEALTH, f"{name}: /healthz took {slowest:.1f} s")


RECORD = {"citations": [{"number": 1, "url": "https://s.example.com/", "title": "t"}]}


def event(body):
    return f"data:{body}\n\n"


def documents():
    """Frames up to the size limit that are expensive to parse."""
    deep = 100_000
    return {
        "arrays 100,000 deep": event("[" * deep + "]" * deep),
        "objects 100,000 deep": event('{"a":' * deep + "1" + "}" * deep),
        "known keys that go deep": event('{"processes":' * deep + "1" + "}" * deep),
        "arrays without an end": event("[" * deep),
        "strings of JSON in strings": event(nested(12)),
        "a number of a million digits": event('{"completion_id":"m","delta_content":' + "9" * MIB + "}"),
        "1e999999999": event('{"completion_id":"m","updated_at":1e999999999,"processes":{"stage":-1e999999999}}'),
        "100,000 keys": event(json.dumps({f"k{n}": n for n in range(100_000)})),
        "one key 100,000 times": event("{" + '"completion_id":"m",' * 100_000 + '"a":1}'),
        "colliding short keys": event(
            "{"
            + ",".join(f'"{a:c}{b:c}{c:c}":0' for a in range(97, 123) for b in range(97, 123) for c in range(97, 123))
            + "}"
        ),
        "20,000 references": references("m", 20_000),
        "a title of 3 MiB": references("m", 1, "t" * (3 * MIB)),
        "a megabyte of escapes": event('{"completion_id":"m","delta_content":"' + "\\u0000" * 170_000 + '"}'),
        "broken surrogates": event('{"completion_id":"m","delta_content":"' + "\\ud800" * 100_000 + '"}'),
        "a megabyte of markers": text("m", "[1]" * 350_000),
        "open markers": text("m", "[" * MIB),
        "open code": text("m", "`" * MIB),
        "200,000 empty lines": "\n" * 200_000,
        "200,000 comments": ":\n" * 200_000,
        "100,000 empty events": "data:\n\n" * 100_000,
        "one event of 100,000 lines": "data:1\n" * 100_000 + "\n",
        "a megabyte of zeros": "\0" * MIB,
    }


def nested(levels):
    document = {"a": 1}
    for _ in range(levels):
        document = {"processes": json.dumps(document), "event_data": json.dumps(document)[:50_000]}
        if len(json.dumps(document)) > 2 * MIB:
            break
    return json.dumps(document)


@attack("relayed byte for byte, memory bounded, /healthz at once")
async def frames_that_cost_much_to_read(kit):
    """Streams deep, huge and repetitive JSON through the tap."""
    sent = {}

    async def response(received, writer):
        body = sent["body"].encode("utf-8", "surrogatepass")
        writer.write(STREAM_HEAD)
        for at in range(0, len(body), 1 << 18):
            writer.write(chunk(body[at : at + (1 << 18)]))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    async with Upstream(response) as upstream, kit.citetap(
        "workers = 2" + route("l0", upstream.port, 'inject = "off"\n')
    ) as server:
        slowest = ("", 0.0)
        for name, body in documents().items():
            sent["body"] = body
            began = time.monotonic()
            async with watched(server, name):
                got = await ask(server, "POST", "/l0/1", body=b"{}", timeout=60)
            took = time.monotonic() - began
            slowest = max(slowest, (name, took), key=lambda pair: pair[1])
            require(
                got.complete and got.body == body.encode("utf-8", "surrogatepass"),
                f"{name}: {got.status}, {len(got.body)} bytes of {len(body)}",
            )
            require(took < 20, f"{name}: took {took:.0f} s")
    return f"{len(documents())} bombs; the slowest, {slowest[0]}, took {slowest[1]:.1f} s"


async def endless(writer, piece, total):
    writer.write(STREAM_HEAD)
    for _ in range(total // len(piece)):
        writer.write(chunk(piece))
        await writer.drain()


@attack("relayed to the end, read up to limits.frame only")
async def frames_larger_than_the_limit(kit):
    """Streams one frame of 64 MiB, an endless line, and an endless JSON head, in every output mode."""
    size = kit.few(64, 256) * MIB
    piece = b"x" * (1 << 18)
    begins = {"frame": b'data:{"completion_id":"m","delta_content":"', "line": b"", "field": b"event: ", "comment": b": "}
    kinds = {
        "m0": 'inject = "final"\n',
        "m1": 'markers = "link"\ninject = "live"\n',
        "m2": 'profile = "openai"\n',
        "m3": 'profile = "ai-sdk"\nmarkers = "sup"\n',
    }

    async def response(received, writer):
        writer.write(STREAM_HEAD + chunk(references("m") + text("m", "[1]")))
        begin = begins[received.path.rsplit("/", 1)[-1]]
        if begin:
            writer.write(chunk(begin))
        for _ in range(size // len(piece)):
            writer.write(chunk(piece))
            await writer.drain()
        writer.write(chunk("\n\n" + finish("m")) + b"0\r\n\r\n")

    async with Upstream(response) as upstream, kit.citetap(
        "".join(route(name, upstream.port, more) for name, more in kinds.items())
    ) as server:
        for name in kinds:
            for kind in begins if not kit.short or name == "m0" else ("frame",):
                async with watched(server, f"{name} {kind}"):
                    async with await Connection.open(server) as connection:
                        await connection.send(request("POST", f"/{name}/{kind}", body=b"{}"))
                        got = await asyncio.wait_for(drain_response(connection), 120)
                # Transcoding to another dialect drops frames that cannot be parsed.
                require(name in ("m2", "m3") or got >= size, f"{name} {kind}: {mib(got)} of {mib(size)}")
    return f"{mib(size)} relayed, memory grew by less than {mib(GROWTH)}"


async def drain_response(connection):
    """Reads to the end of the chunked response; returns the number of bytes."""
    total, last = 0, b""
    while piece := await connection.reader.read(1 << 18):
        total += len(piece)
        last = (last + piece)[-16:]
        if last.endswith(b"0\r\n\r\n"):
            break
    return total


@attack("relayed unchanged, never decompressed")
async def responses_that_are_compressed(kit):
    """Sends gzip bombs, truncated gzip and unknown codings, although citetap asks for identity."""
    bomb = gzip.compress(b"\0" * (kit.few(64, 512) * MIB))
    coding = {"value": "gzip", "body": bomb}

    async def response(received, writer):
        more = f"Content-Encoding: {coding['value']}\r\n"
        writer.write(with_length(coding["body"], kind="text/event-stream", more=more))

    async with Upstream(response) as upstream, kit.citetap(route("l0", upstream.port)) as server:
        for value, body in (
            ("gzip", bomb),
            ("gzip, gzip", gzip.compress(bomb)),
            ("br", bomb),
            ("deflate", bomb[:100]),
            ("zstd", b""),
            ("identity, gzip", bomb),
        ):
            coding.update(value=value, body=body)
            async with watched(server, f"coding {value}", 24 * MIB):
                got = await ask(server, "GET", "/l0/1", [("Accept-Encoding", "gzip, br")])
            require(
                got.body == body and got.header("content-encoding") == value,
                f"{value}: {len(got.body)} of {len(body)} bytes, {got.headers}",
            )
        codings = {value for received in upstream.received for value in received.all("accept-encoding")}
        require(codings == {"identity"}, f"Accept-Encoding at the upstream: {codings}")
        got = await ask(server, "POST", "/render", [("Content-Encoding", "gzip"), ("Content-Type", "application/json")], bomb)
        require(got.status in (400, 413, 415), f"a compressed request got {got.status}")
    return f"{len(bomb) >> 10} KiB stayed compressed"


@attack("a response within 10 s, memory bounded, /healthz at once")
async def request_bodies_that_cost_much_to_read(kit):
    """Sends deep, huge and quadratic bodies to every endpoint that parses one."""
    deep = 100_000
    wide = "[" * 200 + "]" * 200
    bodies = {
        "deep arrays": b"[" * deep + b"]" * deep,
        "deep objects": b'{"a":' * deep + b"1" + b"}" * deep,
        "deep where text should be": b'{"text":' * deep + b"1" + b"}" * deep,
        "a huge number": b'{"limit":' + b"9" * MIB + b"}",
        "100,000 keys": body_of({f"k{n}": n for n in range(100_000)}),
        "many brackets": body_of({"text": "[" * 200_000, "style": "html", "record": RECORD}),
        "many markers": body_of({"text": "[1]" * 100_000, "style": "sup", "record": RECORD}),
        "nested lists": body_of({"text": "".join(" " * n + "- a\n" for n in range(600)), "style": "html", "record": RECORD}),
        "many stars": body_of({"text": "*a " * 60_000 + "**" * 1000, "style": "html", "record": RECORD}),
        "many links": body_of({"text": "[a](" * 60_000, "style": "html", "record": RECORD}),
        "many backticks": body_of({"text": "".join("`" * n + " " for n in range(500)), "style": "html", "record": RECORD}),
        "tags": body_of({"text": "<a " * 60_000, "style": "html", "record": RECORD}),
        "many messages": body_of({"model": "m", "messages": [{"role": "user", "content": wide}] * 3000}),
        "no text": b"\xff\xfe" * 100_000,
        "many events": b"data:{}\n\n" * 60_000,
        "references": references("m", 5000).encode(),
    }
    more = '[routes.openai]\nmodels = ["m"]\n'
    async with Upstream() as upstream, kit.citetap(f"workers = 2{route('l0', upstream.port, more)}") as server:
        slowest, statuses = ("", 0.0), {}
        for name, body in bodies.items():
            for path in ("/render", "/normalize", "/normalize?provider=tencent", "/search", "/v1/chat/completions"):
                began = time.monotonic()
                async with watched(server, f"{name} to {path}"):
                    got = await ask(server, "POST", path, [("Content-Type", "application/json")], body, timeout=60)
                took = time.monotonic() - began
                slowest = max(slowest, (f"{name} to {path}", took), key=lambda pair: pair[1])
                statuses[got.status] = statuses.get(got.status, 0) + 1
                require(got.status < 500 or got.status == 503, f"{name} to {path}: {got.status} {got.text[:100]}")
                require(took < 10, f"{name} to {path} took {took:.1f} s")
    return f"statuses {statuses}; the slowest, {slowest[0]}, took {slowest[1]:.1f} s"


@attack("a response within 5 s, or a refusal")
async def markdown_that_nests(kit):
    """Renders texts of 50 KiB whose quotes and lists nest at every word: time must not grow with the square of the depth."""
    async with kit.citetap(route("l0", 1)) as server:
        slow = []
        for name, text_of in {
            "quotes": "> " * 25_000,
            "lists": "- " * 25_000,
            "numbered lists": "1. " * 17_000,
            "quotes and lists": "> - " * 12_500,
            "deep lists": "".join("  " * n + "- a\n" for n in range(220)),
            "emphasis": "*a _b " * 8000,
            "links": "[a](" * 12_500,
        }.items():
            began = time.monotonic()
            body = body_of({"text": text_of + "x", "style": "html", "record": RECORD})
            try:
                response = await ask(server, "POST", "/render", [("Content-Type", "application/json")], body, timeout=15)
                require(response.status in (200, 400, 413, 422), f"{name}: {response.status}")
            except TimeoutError:
                pass
            if (took := time.monotonic() - began) > 5:
                slow.append(f"{name} of {len(body) >> 10} KiB {took:.0f} s")
        require(not slow, "; ".join(slow))
    return "7 texts"


@attack("memory and response bounded, however often a source is cited")
async def records_that_a_text_repeats(kit):
    """Renders a text that cites one source with a title of 500 KB 150 times: the response must not grow with the product."""
    record = {"citations": [{"number": 1, "url": "https://s.example.com/", "title": "t" * 500_000, "content": "c" * 500_000}]}
    async with kit.citetap(route("l0", 1)) as server:
        grown = {}
        for style in ("html", "sup", "link", "footnote", "strip"):
            before = server.rss()
            server.forget_peak()
            body = body_of({"text": "a [1] " * 150, "style": style, "record": record})
            response = await ask(server, "POST", "/render", [("Content-Type", "application/json")], body, timeout=30)
            if server.peak() - before > GROWTH or len(response.body) > 8 * len(body):
                grown[style] = f"{mib(len(response.body))} of {mib(len(body))}, memory {mib(server.peak() - before)}"
        require(not grown, f"{grown}")
    return "bounded"


@attack("502, or cut at a cap; memory bounded")
async def heads_and_trailers_without_end(kit):
    """An upstream sends a head, a chunk extension or trailers that never end."""
    parts = {
        "head": b"HTTP/1.1 200 OK\r\nX: ",
        "heads": b"HTTP/1.1 200 OK\r\n",
        "extension": STREAM_HEAD + b"1;",
        "trailers": STREAM_HEAD + b"1\r\nz\r\n0\r\n",
        "status": b"HTTP/1.1 200 ",
    }
    fill = {"heads": b"X: y\r\n" * 10_000, "trailers": b"X: y\r\n" * 10_000}

    async def response(received, writer):
        kind = received.path.rsplit("/", 1)[-1]
        writer.write(parts[kind])
        for _ in range(1000):
            writer.write(fill.get(kind, b"y" * 65_536))
            await writer.drain()

    async with Upstream(response) as upstream, kit.citetap(
        f'[timeouts]\nfirst_byte = "5s"\n{route("l0", upstream.port)}'
    ) as server:
        got = {}
        for kind in parts:
            async with watched(server, kind, 24 * MIB):
                try:
                    answered = await ask(server, "GET", f"/l0/{kind}", timeout=20)
                    require(answered.status == 502 or not answered.complete, f"{kind}: {answered.status}, whole")
                    got[kind] = answered.status
                except Malformed as error:
                    got[kind] = str(error)[:40]
    return f"{got}"


@attack("400, 413, 414 or 431")
async def targets_and_bodies_of_any_size(kit):
    """Sends long queries, many parameters and bodies over the limit to citetap's own endpoints."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        async with watched(server, "targets and bodies"):
            for target in (
                "/citations?" + "a=b&" * 3000,
                "/citations?q=" + "%41" * 4000,
                "/citations?cursor=" + "A" * 12_000,
                "/citations/" + "a" * 12_000,
                "/citations?limit=" + "9" * 5000,
            ):
                got = await ask(server, "GET", target)
                require(got.status in (200, 400, 404), f"{target[:30]}: {got.status}")
            for target in ("/citations?" + "a=b&" * 300_000, "/" + "a/" * 40_000):
                reply = await raw(server, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), timeout=2)
                require(status_of(reply) in (400, 414, 431), f"{target[:20]}: {reply[:40]!r}")
            for path in ("/l0/length/1", "/render", "/normalize", "/search"):
                head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {11 * MIB}\r\n\r\n".encode()
                reply = await raw(server, head + b"x" * 1000, timeout=2)
                # /search answers 503 before it checks the length: no search is configured.
                require(status_of(reply) in (413,) + (503,) * (path == "/search"), f"11 MiB to {path}: {reply[:40]!r}")
    return "refused"
