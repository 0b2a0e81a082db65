"""Request smuggling: the upstream executes exactly what the client framed, or citetap refuses and closes."""

import asyncio
import contextlib
import random

import fronts
from kit import Unexpected, attack, require, route
from upstreams import Upstream
from variants import HIDDEN, PATH, all_variants
from wire import HOST, Connection, Malformed, ask, request

LANES = 10
LIMIT = '[limits]\nrequest_body = "1MiB"\n'
# Seconds of silence after which the server is assumed to wait for more bytes.
QUIET = 0.3


class Lane:
    """A route with an upstream of its own, so that lanes do not share a pool."""

    def __init__(self, server, upstream, name):
        self.server, self.upstream, self.name = server, upstream, name
        self.counter = 0

    def paths(self, shape):
        self.counter += 1
        return (
            path.replace("/l0/", f"/{self.name}/")
            .replace("length", shape if "length" in path else "length")
            .replace("00000000", f"{self.counter:08}")
            for path in (PATH, HIDDEN)
        )

    async def check_next_client(self, why):
        """Checks that the next client gets its own response."""
        path, _ = self.paths("length")
        response = await ask(self.server, "GET", path)
        require(
            response.status == 200 and response.complete and response.text == f"<GET /{path.split('/', 2)[2]}>",
            f"{why}: the next client got {response.status} {response.text[:80]!r}",
        )

    async def check_variant(self, variant, cuts=(), shape="length", warm=True):
        """Sends a variant and compares what the upstream executed with the allowed readings."""
        why = f"{variant.name} ({shape}, {'warm' if warm else 'cold'}, cut at {list(cuts)[:4]})"
        if not warm:
            self.upstream.drop_connections()
            await asyncio.sleep(0.005)
        path, hidden = self.paths(shape)
        upstream_path, mark = path.split("/", 2)[2], f"{self.counter:08}"
        before = len(self.upstream.received)
        expected = max(map(len, variant.readings))
        responses, closed, stray = await self.exchange(variant.bytes(path, hidden), cuts, expected)
        await asyncio.sleep(0.002)
        received = self.upstream.received[before:]
        executed = [
            ("first" if upstream_path in one.path else "hidden", bytes(one.body))
            for one in received
            if one.complete and mark in one.path
        ]
        require(not self.upstream.garbage, f"{why}: the upstream could not read {self.upstream.garbage[:1]}")
        readings = [[(kind, body.replace("@S", hidden).encode()) for kind, body in reading] for reading in variant.readings]
        matching = [reading for reading in readings if reading[: len(executed)] == executed]
        require(matching, f"{why}: executed {executed}, allowed are {readings}")
        require(not stray, f"{why}: bytes that are no response: {stray!r}")
        refusals = [response for response in responses if response.status >= 400]
        require(len(responses) - len(refusals) <= len(executed), f"{why}: more responses than requests")
        require(
            all(response.status < 500 or response.status == 501 for response in refusals),
            f"{why}: answered {[response.status for response in responses]}",
        )
        if executed not in readings and refusals and not closed:
            require(False, f"{why}: refused with {refusals[0].status} and not closed")
        return executed, responses

    async def exchange(self, data, cuts, expected):
        responses, closed, stray = [], False, b""
        async with await Connection.open(self.server) as connection:
            sending = asyncio.create_task(connection.send(data, cuts))
            patience = QUIET + 0.004 * len(cuts)
            try:
                while len(responses) <= expected:
                    method = data.lstrip()[:4].decode("latin-1").strip() if not responses else "GET"
                    waits = patience if len(responses) < expected or not responses else 0.03
                    response = await connection.response(method, waits)
                    if response is None:
                        closed = True
                        break
                    responses.append(response)
                    if response.header("connection") == "close":
                        closed = await connection.is_closed(0.7)
                        break
            except TimeoutError:
                pass
            except Malformed as error:
                stray = str(error)
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending
        return responses, closed, stray


async def run_on_lanes(kit, jobs, more=""):
    """Runs the jobs on lanes in parallel: citetap with one worker, one upstream per lane. Returns {variant: failure}."""
    failures = {}
    async with contextlib.AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(Upstream()) for _ in range(LANES)]
        routes = "".join(route(f"l{n}", upstream.port) for n, upstream in enumerate(upstreams))
        server = await stack.enter_async_context(kit.citetap(f"workers = 1\n{more}{LIMIT}{routes}"))
        lanes = [Lane(server, upstream, f"l{n}") for n, upstream in enumerate(upstreams)]
        queue = asyncio.Queue()
        for job in jobs:
            queue.put_nowait(job)

        async def worker(lane):
            while not queue.empty():
                variant, cuts, shape, warm = queue.get_nowait()
                try:
                    if warm:
                        await lane.check_next_client("before " + variant.name)
                    await lane.check_variant(variant, cuts, shape, warm)
                    await lane.check_next_client("after " + variant.name)
                except Unexpected as error:
                    failures.setdefault(variant.name, str(error))
                    lane.upstream.garbage.clear()

        await asyncio.gather(*map(worker, lanes))
    return failures


async def run_jobs(kit, jobs):
    failures = await run_on_lanes(kit, jobs)
    require(not failures, f"{len(failures)} variants: {'; '.join(list(failures.values())[:4])}")
    return f"{len(jobs)} requests, none smuggled"


@attack("each reading that RFC 9112 allows, or a refusal and a closed connection")
async def ambiguous_requests_in_one_piece(kit):
    """Sends every variant whole, over new and pooled upstream connections, for responses with a length and in chunks."""
    return await run_jobs(
        kit,
        [
            (variant, (), shape, warm)
            for variant in all_variants()
            for shape in ("length", "stream")
            for warm in (True, False)
        ],
    )


@attack("the same as in one piece")
async def ambiguous_requests_cut_anywhere(kit):
    """Cuts every variant into pieces at random places, so that reads end in the middle of a framing header or a chunk size."""
    rng = random.Random(9112)
    jobs = []
    for variant in all_variants():
        size = min(len(variant.bytes(PATH, HIDDEN)), 3000)
        for _ in range(kit.few(2, 25)):
            cuts = sorted(rng.sample(range(1, size), min(rng.choice((1, 2, 5, 12)), size - 1)))
            jobs.append((variant, cuts, rng.choice(("length", "stream")), rng.random() < 0.5))
    return await run_jobs(kit, jobs)


@attack("the same at every byte")
async def requests_split_at_every_byte(kit):
    """Splits representative variants at each of their bytes."""
    wanted = (
        "CL+TE of 4",
        "TE 'chunked'",
        "TE 'xchunked'",
        "CL '5'",
        "CL twice, 5 and 6",
        "chunked GET",
        "chunk size '1;a'",
        "TE behind a bare LF",
    )
    step = kit.few(7, 1)
    jobs = []
    for variant in all_variants():
        if variant.name in wanted:
            size = len(variant.bytes(PATH, HIDDEN))
            jobs += [(variant, (cut,), "length", cut % 2 == 0) for cut in range(1, size, step)]
    return await run_jobs(kit, jobs)


@attack("exactly the requests sent, in order, each answered with its own answer")
async def requests_hidden_in_the_bodies_of_a_pipeline(kit):
    """Sends pipelined requests whose bodies contain requests, in random pieces."""
    rng = random.Random(7)
    total = 0
    async with Upstream() as upstream, kit.citetap(f"workers = 1\n{LIMIT}{route('l0', upstream.port)}") as server:
        for _ in range(kit.few(12, 150)):
            parts, expected = [], []
            for index in range(rng.randrange(3, 10)):
                total += 1
                path, body = f"/{rng.choice(('length', 'stream'))}/{total:08}", HIDDEN * rng.randrange(0, 40)
                kind = rng.choice(("none", "length", "chunks"))
                if kind == "none":
                    parts.append(f"GET /l0{path} HTTP/1.1\r\nHost: {HOST}\r\n\r\n")
                    expected.append(("GET", path, b""))
                    continue
                framed = f"Content-Length: {len(body)}\r\n\r\n{body}"
                if kind == "chunks":
                    size = rng.randrange(1, 700)
                    pieces = [body[at : at + size] for at in range(0, len(body), size)]
                    framed = f"Transfer-Encoding: chunked\r\n\r\n{''.join(f'{len(p):x}{chr(13)}{chr(10)}{p}{chr(13)}{chr(10)}' for p in pieces)}0\r\n\r\n"
                parts.append(f"POST /l0{path} HTTP/1.1\r\nHost: {HOST}\r\n{framed}")
                expected.append(("POST", path, body.encode()))
            data = "".join(parts).encode()
            before = len(upstream.received)
            async with await Connection.open(server) as connection:
                cuts = sorted(rng.sample(range(1, len(data)), min(rng.randrange(20), len(data) - 1)))
                sending = asyncio.create_task(connection.send(data, cuts))
                for method, path, _ in expected:
                    response = await connection.response(method)
                    require(
                        response and response.status == 200 and f"{method} {path}" in response.text,
                        f"{method} {path} got {response and response.status} {response and response.text[:60]!r}",
                    )
                await sending
            received = [(one.method, one.path, bytes(one.body)) for one in upstream.received[before:] if one.complete]
            require(received == expected, f"executed {[r[:2] for r in received]} of {[e[:2] for e in expected]}")
    return f"{total} requests in order"


@attack("the upstream never sees a whole request")
async def bodies_that_end_too_early(kit):
    """Closes or resets the connection in the middle of a body, with a length and in chunks, also within chunk framing."""
    async with Upstream() as upstream, kit.citetap(f"workers = 1\n{LIMIT}{route('l0', upstream.port)}") as server:
        head = f"POST /l0/length/1 HTTP/1.1\r\nHost: {HOST}\r\n"
        whole = [
            f"{head}Content-Length: 40\r\n\r\n{'y' * 39}",
            f"{head}Transfer-Encoding: chunked\r\n\r\n20\r\n{'y' * 32}\r\n0\r\n\r",
        ]
        tried = 0
        for text in whole:
            body = text.index("\r\n\r\n") + 4
            for end in range(body, len(text) + 1, kit.few(6, 1)):
                for abort in (False, True):
                    async with await Connection.open(server) as connection:
                        await connection.send(text[:end].encode())
                        await asyncio.sleep(0.01)
                        if abort:
                            connection.abort()
                    tried += 1
        await asyncio.sleep(0.3)
        require(not upstream.complete(), f"{len(upstream.complete())} of {tried} were taken for complete")
        require((await ask(server, "GET", "/l0/length/2")).status == 200, "the next request failed")
    return f"{tried} ended early, none was complete"


@attack("1xx, then the response; the body arrives whole")
async def body_after_100_continue(kit):
    """Sends the body only after 100 Continue, as curl does: no deadlock, and nothing is lost."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        async with await Connection.open(server) as connection:
            await connection.send(request("POST", "/l0/length/1", [("Expect", "100-continue"), ("Content-Length", "5")]))
            reply = await asyncio.wait_for(connection.reader.readuntil(b"\r\n\r\n"), 3)
            require(reply.startswith(b"HTTP/1.1 100"), f"got {reply[:40]!r}")
            await connection.send(b"hello")
            response = await connection.response()
            require(response.status == 200 and bytes(upstream.complete()[0].body) == b"hello", f"got {response.status}")
    return "100, then 200"


@attack("nothing that both nginx and HAProxy refuse, except known differences")
async def differential_against_nginx_and_haproxy(kit):
    """Sends every variant to nginx and HAProxy as well and lists where citetap accepts what both refuse."""
    return await fronts.compare(kit, all_variants())
