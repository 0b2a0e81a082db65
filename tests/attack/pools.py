"""Poisoned pools: whatever an upstream sends, the next client never gets another's bytes."""

import asyncio

from kit import Unexpected, attack, require, route
from upstreams import STREAM_HEAD, Upstream, answer_stream, chunk, with_length
from wire import Connection, Malformed, ask, request

POISON = "POISONED"
FOREIGN = with_length(POISON * 3).decode()
# One character per byte, as all texts here.
STREAM = (STREAM_HEAD + chunk(answer_stream("m-1"))).decode("latin-1")
OWN_STREAM = STREAM + "0\r\n\r\n"


def own(more="", body="own answer"):
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body.encode())}\r\n{more}\r\n{body}"


def framed(framing, body):
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{framing}\r\n\r\n{body}"


# What an upstream sends for one request. After each of them the next client must have its own answer.
AFTER = {
    "a second answer": own() + FOREIGN,
    "a second answer after a stream": OWN_STREAM + FOREIGN,
    "ten more answers": own() + FOREIGN * 10,
    "garbage behind": own() + POISON,
    "garbage behind a stream": OWN_STREAM + POISON,
    "one byte behind": own() + "P",
    "a line end behind": own() + "\r\n" + FOREIGN,
    "more than its length": own()[:-1] + "r" + POISON,
    "half of another answer": own() + FOREIGN[:-4],
    "an interim answer behind": own() + "HTTP/1.1 103 Early Hints\r\nX: " + POISON + "\r\n\r\n" + FOREIGN,
    "204 with a body": "HTTP/1.1 204 No Content\r\nContent-Length: 24\r\n\r\n" + FOREIGN,
    "304 with a body": "HTTP/1.1 304 Not Modified\r\nContent-Length: 24\r\n\r\n" + FOREIGN,
    "205 with a body": "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n" + FOREIGN,
    "close that is not closed": own("Connection: close\r\n") + FOREIGN,
    "HTTP/1.0": own().replace("HTTP/1.1", "HTTP/1.0") + FOREIGN,
    "trailers and more": STREAM_HEAD.decode() + "1\r\nz\r\n0\r\nX: y\r\n\r\n" + FOREIGN,
    "length of zero": framed("Content-Length: 0", "") + FOREIGN,
}
# Answers that are none, or that two readers would end at different places.
ODD = {
    "lengths 2 and 2": framed("Content-Length: 2\r\nContent-Length: 2", "ok") + FOREIGN,
    "length '2, 2'": framed("Content-Length: 2, 2", "ok") + FOREIGN,
    "length '2, 3'": framed("Content-Length: 2, 3", "ok") + FOREIGN,
    "lengths 2 and 3": framed("Content-Length: 2\r\nContent-Length: 3", "ok") + FOREIGN,
    "length -2": framed("Content-Length: -2", "ok") + FOREIGN,
    "length +2": framed("Content-Length: +2", "ok") + FOREIGN,
    "length 2^64+2": framed("Content-Length: 18446744073709551618", "ok") + FOREIGN,
    "chunks beside a length": framed("Content-Length: 2\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n") + FOREIGN,
    "length beside chunks": framed("Transfer-Encoding: chunked\r\nContent-Length: 400", "2\r\nok\r\n0\r\n\r\n") + FOREIGN,
    "TE gzip, chunked": framed("Transfer-Encoding: gzip, chunked", "2\r\nok\r\n0\r\n\r\n") + FOREIGN,
    "TE chunked, gzip": framed("Transfer-Encoding: chunked, gzip", "2\r\nok\r\n0\r\n\r\n") + FOREIGN,
    "TE gzip": framed("Transfer-Encoding: gzip", "ok") + FOREIGN,
    "TE identity": framed("Transfer-Encoding: identity\r\nContent-Length: 2", "ok") + FOREIGN,
    "TE xchunked": framed("Transfer-Encoding: xchunked", "2\r\nok\r\n0\r\n\r\n") + FOREIGN,
    "TE twice": framed("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n") + FOREIGN,
    "a bad chunk size": framed("Transfer-Encoding: chunked", "2\r\nok\r\nzz\r\n") + FOREIGN,
    "a chunk size that overflows": framed("Transfer-Encoding: chunked", "ffffffffffffffffff\r\nok") + FOREIGN,
    "a chunk without its end": framed("Transfer-Encoding: chunked", "2\r\nokX\r\n0\r\n\r\n") + FOREIGN,
    "a space before the colon": framed("Content-Length : 2", "ok") + FOREIGN,
    "a folded length": framed("Content-Length:\r\n 2", "ok") + FOREIGN,
    "NUL in a header": framed("X: a\0b\r\nContent-Length: 2", "ok") + FOREIGN,
    "bare LF": framed("X: a\nContent-Length: 2", "ok") + FOREIGN,
    "bare CR": framed("X: a\rContent-Length: 2", "ok") + FOREIGN,
    "no status line": POISON + "\r\n\r\n" + FOREIGN,
    "status 000": own().replace("200", "000") + FOREIGN,
    "status 99": own().replace("200", "99") + FOREIGN,
    "status 1000": own().replace("200", "1000") + FOREIGN,
    "status -1": own().replace("200", "-1") + FOREIGN,
    "HTTP/2.0": own().replace("HTTP/1.1", "HTTP/2.0") + FOREIGN,
    "h2 settings": "\0\0\0\4\0\0\0\0\0" + FOREIGN,
    "101 that nobody asked for": "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + FOREIGN,
    "100 without end": "HTTP/1.1 100 Continue\r\n\r\n" * 5000,
    "103 without end": f"HTTP/1.1 103 Early Hints\r\nLink: <{'x' * 200}>\r\n\r\n" * 5000 + FOREIGN,
    "199, then the answer": "HTTP/1.1 199 X\r\n\r\n" + own() + FOREIGN,
    "a header of 200 KiB": framed("X: " + "y" * 200_000 + "\r\nContent-Length: 2", "ok") + FOREIGN,
    "5000 headers": framed("".join(f"X{n}: y\r\n" for n in range(5000)) + "Content-Length: 2", "ok") + FOREIGN,
    "nothing": "",
}
# The head or the body is cut: to the client it must not look whole.
CUT = {
    "in the head": own()[:30],
    "in a body with a length": own()[:-3],
    "in a chunk": STREAM_HEAD.decode() + "50\r\ndata: x",
    "between chunks": STREAM,
    "before the last line end": OWN_STREAM[:-2],
    "in a chunk's size": STREAM_HEAD.decode() + "5",
}


class Poisoner(Upstream):
    """Sends `first` for paths with /poison, at once or some time after a part of it, and proper answers otherwise."""

    def __init__(self):
        super().__init__(self.poison)
        self.first, self.later, self.pause, self.ends = "", "", 0, False

    async def poison(self, received, writer):
        if "/poison" not in received.path:
            writer.write(with_length(f"<{received.path}>"))
            return None
        writer.write(self.first.encode("latin-1"))
        await writer.drain()
        if self.later:
            await asyncio.sleep(self.pause)
            writer.write(self.later.encode())
            await writer.drain()
        return not self.ends


async def victims(server, why, count=3):
    """The next clients, as fast as they can come and a little later."""
    for number in range(count):
        answer = await ask(server, "GET", f"/l0/victim/{number}", timeout=5)
        require(
            POISON not in answer.text and POISON not in str(answer.headers),
            f"{why}: the next client got {answer.text[:60]!r}",
        )
        require(
            answer.status == 200 and answer.text == f"</victim/{number}>",
            f"{why}: the next client got {answer.status} {answer.text[:60]!r}",
        )
        await asyncio.sleep(0.005 * number)


async def poisoned(server, upstream, name, first, later="", pause=0.0, wait=0.0, method="GET"):
    """Gives the answer of the one who was sent the poison."""
    upstream.first, upstream.later, upstream.pause = first, later, pause
    async with await Connection.open(server) as connection:
        await connection.send(request(method, "/l0/poison"))
        try:
            answer = await connection.answer(method, 5)
        except (Malformed, TimeoutError) as error:
            require(isinstance(error, TimeoutError), f"{name}: the client got {error}")
            answer = None
        if wait:
            await asyncio.sleep(wait)
        await victims(server, name)
    return answer


@attack("the next clients get their own answers")
async def bytes_behind_an_answer(kit):
    """Sends more than the answer, in the same packet and a moment later, with and without a length."""
    async with Poisoner() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        for _ in range(kit.few(2, 20)):
            for name, sent in AFTER.items():
                answer = await poisoned(server, upstream, name, sent)
                require(answer is not None and POISON not in answer.text, f"{name}: {answer and answer.text[:80]!r}")
            for pause in (0.005, 0.03):
                answer = await poisoned(server, upstream, "a late answer", own(), FOREIGN, pause, pause + 0.03)
                require(answer.text == "own answer", f"got {answer.text!r}")
    return f"{len(AFTER) + 2} kinds of excess bytes, none delivered"


@attack("one answer or a 502, and the next clients get their own")
async def answers_that_two_readers_end_differently(kit):
    """Sends answers with odd framing, odd status lines, interim answers without end, and none."""
    got = {}
    more = '\n[timeouts]\nfirst_byte = "2s"\nupstream_idle = "1s"\n'
    async with Poisoner() as upstream, kit.citetap("workers = 1" + more + route("l0", upstream.port)) as server:
        wrong = []
        for name, sent in ODD.items():
            upstream.ends = name == "nothing"
            try:
                answer = await poisoned(server, upstream, name, sent)
                if answer is not None:
                    got[answer.status] = got.get(answer.status, 0) + 1
                    # Without a length the answer is all that comes, which is its own.
                    unframed = name in ("TE gzip", "TE xchunked", "TE chunked, gzip", "TE identity")
                    require(
                        unframed or POISON not in answer.text or not answer.complete,
                        f"{name}: {answer.status} {answer.text[:80]!r}",
                    )
                    require(
                        len(answer.all("content-length") + answer.all("transfer-encoding")) <= 1, f"{name}: {answer.headers}"
                    )
                    require(answer.status != 101, f"{name}: status {answer.status}")
            except Unexpected as error:
                wrong.append(str(error))
    require(not wrong, "; ".join(wrong))
    return f"statuses {got}"


@attack("a cut answer is cut for the client too")
async def answers_that_are_cut(kit):
    """Closes and resets upstream connections in the midst of answers."""
    async with Poisoner() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        upstream.ends = True
        for name, sent in CUT.items():
            answer = await poisoned(server, upstream, name, sent)
            require(
                answer is not None and (answer.status == 502 or not answer.complete), f"{name}: looks whole, {answer.status}"
            )
    return f"{len(CUT)} cuts seen as cuts"


@attack("HEAD has no body, and nothing of one reaches the next client")
async def head_answered_with_a_body(kit):
    """Answers HEAD with a body, which the next client of that connection would get as its answer."""
    async with Poisoner() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        for sent in (own() + FOREIGN, FOREIGN, OWN_STREAM, framed("Content-Length: 0", "") + FOREIGN):
            async with await Connection.open(server) as connection:
                await connection.send(request("HEAD", "/l0/poison") + request("GET", "/l0/victim/9"))
                upstream.first = sent
                head = await connection.answer("HEAD", 5)
                after = await connection.answer("GET", 5)
                require(head.status == 200, f"HEAD got {head.status}")
                require(after and after.text == "</victim/9>", f"then {after and after.text[:60]!r}")
            await victims(server, "HEAD")
    return "4 bodies dropped"


@attack("the next clients get their own answers")
async def answers_before_the_request(kit):
    """Sends an answer as soon as the connection opens, and the real one afterwards."""

    async def eager(reader, writer):
        writer.write(FOREIGN.encode())
        await writer.drain()
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ")[1].decode()
                writer.write(with_length(f"<{path}>"))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.close()

    listening = await asyncio.start_server(eager, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    async with listening, kit.citetap("workers = 1" + route("l0", port)) as server:
        statuses = []
        for number in range(kit.few(20, 300)):
            answer = await ask(server, "GET", f"/l0/victim/{number}")
            # What arrives before the request is written is nobody's; after it, it cannot be told from an answer. Either way it
            # is never another client's, and the bytes behind it are never delivered.
            require(
                f"</victim/{number}>" in answer.text or POISON in answer.text or answer.status == 502,
                f"got {answer.text[:60]!r}",
            )
            statuses.append(answer.status)
    return f"{statuses.count(200)} answers, {statuses.count(502)} times 502"


@attack("the rest of the body is not sent as another request, and the connection is not used again")
async def early_answers_to_half_a_request(kit):
    """Answers at the head of a request whose body is still on its way."""

    async def early(received, writer):
        if "/early" in received.path:
            writer.write(with_length("early"))
            await writer.drain()

    async with Upstream(on_head=early) as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        hidden = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        for number in range(kit.few(10, 100)):
            async with await Connection.open(server) as connection:
                await connection.send(request("POST", "/l0/early", [("Content-Length", str(len(hidden) + 5))]) + b"hello")
                answer = await connection.answer(timeout=5)
                require(answer.text == "early", f"got {answer.status} {answer.text[:40]!r}")
                await asyncio.sleep(0.002)
                await connection.send(hidden)
            path = f"/l0/length/{number}"
            answer = await ask(server, "GET", path)
            require(answer.text == f"<GET {path[3:]}>", f"the next client got {answer.text[:60]!r}")
        require(
            not upstream.garbage and not [one for one in upstream.received if "smuggled" in one.path],
            f"the upstream read {upstream.garbage[:1]}",
        )
    return "connections of half requests were closed"


@attack("every client gets the answer that names it")
async def crowd_on_a_pool_that_misbehaves(kit):
    """Many clients at once on one pool, with a poisoned answer here and there."""
    async with Poisoner() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        upstream.first = own() + FOREIGN
        wrong = []

        async def client(number):
            for turn in range(kit.few(6, 40)):
                if number % 4 == 0:
                    answer = await ask(server, "GET", "/l0/poison")
                    expected = "own answer"
                else:
                    answer = await ask(server, "GET", f"/l0/victim/{number}-{turn}")
                    expected = f"</victim/{number}-{turn}>"
                if answer.text != expected:
                    wrong.append((expected, answer.status, answer.text[:60]))

        await asyncio.gather(*(client(number) for number in range(kit.few(24, 64))))
        require(not wrong, f"{wrong[:2]}")
    return "all their own"
