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
# Silence after which the server is taken to wait for more.
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

    async def neighbour(self, why):
        """Another client gets its own answer."""
        path, _ = self.paths("length")
        answer = await ask(self.server, "GET", path)
        require(
            answer.status == 200 and answer.complete and answer.text == f"<GET /{path.split('/', 2)[2]}>",
            f"{why}: the next client got {answer.status} {answer.text[:80]!r}",
        )

    async def strike(self, variant, cuts=(), shape="length", warm=True):
        """Sends it and compares what the upstream executed."""
        why = f"{variant.name} ({shape}, {'warm' if warm else 'cold'}, cut at {list(cuts)[:4]})"
        if not warm:
            self.upstream.drop_connections()
            await asyncio.sleep(0.005)
        path, hidden = self.paths(shape)
        upstream_path, mark = path.split("/", 2)[2], f"{self.counter:08}"
        before = len(self.upstream.received)
        expected = max(map(len, variant.readings))
        answers, closed, loose = await self.talk(variant.bytes(path, hidden), cuts, expected)
        await asyncio.sleep(0.002)
        received = self.upstream.received[before:]
        executed = [
            ("first" if upstream_path in one.path else "hidden", bytes(one.body))
            for one in received
            if one.complete and mark in one.path
        ]
        require(not self.upstream.garbage, f"{why}: the upstream could not read {self.upstream.garbage[:1]}")
        readings = [[(kind, body.replace("@S", hidden).encode()) for kind, body in reading] for reading in variant.readings]
        fits = [reading for reading in readings if reading[: len(executed)] == executed]
        require(fits, f"{why}: executed {executed}, allowed are {readings}")
        require(not loose, f"{why}: bytes that are no answer: {loose!r}")
        refusals = [answer for answer in answers if answer.status >= 400]
        require(len(answers) - len(refusals) <= len(executed), f"{why}: more answers than requests")
        require(
            all(answer.status < 500 or answer.status == 501 for answer in refusals),
            f"{why}: answered {[answer.status for answer in answers]}",
        )
        if executed not in readings and refusals and not closed:
            require(False, f"{why}: refused with {refusals[0].status} and not closed")
        return executed, answers

    async def talk(self, data, cuts, expected):
        answers, closed, loose = [], False, b""
        async with await Connection.open(self.server) as connection:
            sending = asyncio.create_task(connection.send(data, cuts))
            patience = QUIET + 0.004 * len(cuts)
            try:
                while len(answers) <= expected:
                    method = data.lstrip()[:4].decode("latin-1").strip() if not answers else "GET"
                    waits = patience if len(answers) < expected or not answers else 0.03
                    answer = await connection.answer(method, waits)
                    if answer is None:
                        closed = True
                        break
                    answers.append(answer)
                    if answer.header("connection") == "close":
                        closed = await connection.is_closed(0.7)
                        break
            except TimeoutError:
                pass
            except Malformed as error:
                loose = str(error)
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending
        return answers, closed, loose


async def across(kit, work, more=""):
    """Runs the jobs of `work(lane)` on lanes in parallel: citetap with one worker, one upstream per lane."""
    failures = {}
    async with contextlib.AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(Upstream()) for _ in range(LANES)]
        routes = "".join(route(f"l{n}", upstream.port) for n, upstream in enumerate(upstreams))
        server = await stack.enter_async_context(kit.citetap(f"workers = 1\n{more}{LIMIT}{routes}"))
        lanes = [Lane(server, upstream, f"l{n}") for n, upstream in enumerate(upstreams)]
        jobs = asyncio.Queue()
        for job in work:
            jobs.put_nowait(job)

        async def runs(lane):
            while not jobs.empty():
                variant, cuts, shape, warm = jobs.get_nowait()
                try:
                    if warm:
                        await lane.neighbour("before " + variant.name)
                    await lane.strike(variant, cuts, shape, warm)
                    await lane.neighbour("after " + variant.name)
                except Unexpected as error:
                    failures.setdefault(variant.name, str(error))
                    lane.upstream.garbage.clear()

        await asyncio.gather(*map(runs, lanes))
    return failures


async def struck(kit, work):
    failures = await across(kit, work)
    require(not failures, f"{len(failures)} variants: {'; '.join(list(failures.values())[:4])}")
    return f"{len(work)} requests, none smuggled"


@attack("each reading that RFC 9112 allows, or a refusal and a closed connection")
async def ambiguous_requests_in_one_piece(kit):
    """Sends every variant whole, over new and pooled upstream connections, for answers with a length and in chunks."""
    return await struck(
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
    """Cuts every variant into pieces at random places, so that reads end in the midst of what decides the framing."""
    rng = random.Random(9112)
    work = []
    for variant in all_variants():
        size = min(len(variant.bytes(PATH, HIDDEN)), 3000)
        for _ in range(kit.few(2, 25)):
            cuts = sorted(rng.sample(range(1, size), min(rng.choice((1, 2, 5, 12)), size - 1)))
            work.append((variant, cuts, rng.choice(("length", "stream")), rng.random() < 0.5))
    return await struck(kit, work)


@attack("the same at every byte")
async def requests_split_at_every_byte(kit):
    """Splits the variants that decide most at each of their bytes."""
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
    work = []
    for variant in all_variants():
        if variant.name in wanted:
            size = len(variant.bytes(PATH, HIDDEN))
            work += [(variant, (cut,), "length", cut % 2 == 0) for cut in range(1, size, step)]
    return await struck(kit, work)


@attack("exactly the requests sent, in order, each answered with its own answer")
async def requests_hidden_in_the_bodies_of_a_pipeline(kit):
    """Sends pipelines of requests whose bodies are requests, in random pieces."""
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
                    answer = await connection.answer(method)
                    require(
                        answer and answer.status == 200 and f"{method} {path}" in answer.text,
                        f"{method} {path} got {answer and answer.status} {answer and answer.text[:60]!r}",
                    )
                await sending
            received = [(one.method, one.path, bytes(one.body)) for one in upstream.received[before:] if one.complete]
            require(received == expected, f"executed {[r[:2] for r in received]} of {[e[:2] for e in expected]}")
    return f"{total} requests in order"


@attack("the upstream never sees a whole request")
async def bodies_that_end_too_early(kit):
    """Closes or resets the connection in the midst of a body, with a length and in chunks, also inside of a chunk's frame."""
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
        require(not upstream.complete(), f"{len(upstream.complete())} of {tried} were taken for whole")
        require((await ask(server, "GET", "/l0/length/2")).status == 200, "the next request failed")
    return f"{tried} ended early, none was whole"


@attack("1xx, then the answer; the body arrives whole")
async def body_after_100_continue(kit):
    """Waits for 100 Continue, as curl does, and sends the body then: no deadlock, and nothing lost."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        async with await Connection.open(server) as connection:
            await connection.send(request("POST", "/l0/length/1", [("Expect", "100-continue"), ("Content-Length", "5")]))
            said = await asyncio.wait_for(connection.reader.readuntil(b"\r\n\r\n"), 3)
            require(said.startswith(b"HTTP/1.1 100"), f"got {said[:40]!r}")
            await connection.send(b"hello")
            answer = await connection.answer()
            require(answer.status == 200 and bytes(upstream.complete()[0].body) == b"hello", f"got {answer.status}")
    return "100, then 200"


@attack("nothing that both nginx and HAProxy refuse, but what is known")
async def differential_against_nginx_and_haproxy(kit):
    """Sends every variant to nginx and HAProxy as well and lists where citetap accepts what both refuse."""
    return await fronts.compare(kit, all_variants())
