"""Connection pool poisoning: whatever an upstream sends, the next client never gets bytes of another response."""

import asyncio

from kit import Unexpected, attack, require, route
from upstreams import STREAM_HEAD, Upstream, answer_stream, chunk, with_length
from wire import Connection, Malformed, ask, request

POISON = "POISONED"
INJECTED = with_length(POISON * 3).decode()
# All texts here have one character per byte.
STREAM = (STREAM_HEAD + chunk(answer_stream("m-1"))).decode("latin-1")
OWN_STREAM = STREAM + "0\r\n\r\n"


def own(more="", body="own answer"):
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body.encode())}\r\n{more}\r\n{body}"


def framed(framing, body):
    return f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{framing}\r\n\r\n{body}"


# What an upstream sends for one request. After each, the next client must get its own response.
AFTER = {
    "a second response": own() + INJECTED,
    "a second response after a stream": OWN_STREAM + INJECTED,
    "ten more responses": own() + INJECTED * 10,
    "garbage behind": own() + POISON,
    "garbage behind a stream": OWN_STREAM + POISON,
    "one byte behind": own() + "P",
    "a line end behind": own() + "\r\n" + INJECTED,
    "more than its length": own()[:-1] + "r" + POISON,
    "half of another response": own() + INJECTED[:-4],
    "an interim response behind": own() + "HTTP/1.1 103 Early Hints\r\nX: " + POISON + "\r\n\r\n" + INJECTED,
    "204 with a body": "HTTP/1.1 204 No Content\r\nContent-Length: 24\r\n\r\n" + INJECTED,
    "304 with a body": "HTTP/1.1 304 Not Modified\r\nContent-Length: 24\r\n\r\n" + INJECTED,
    "205 with a body": "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n" + INJECTED,
    "close that is not closed": own("Connection: close\r\n") + INJECTED,
    "HTTP/1.0": own().replace("HTTP/1.1", "HTTP/1.0") + INJECTED,
    "trailers and more": STREAM_HEAD.decode() + "1\r\nz\r\n0\r\nX: y\r\n\r\n" + INJECTED,
    "length of zero": framed("Content-Length: 0", "") + INJECTED,
}
# Invalid responses, and ones that two parsers would end at different bytes.
ODD = {
    "lengths 2 and 2": framed("Content-Length: 2\r\nContent-Length: 2", "ok") + INJECTED,
    "length '2, 2'": framed("Content-Length: 2, 2", "ok") + INJECTED,
    "length '2, 3'": framed("Content-Length: 2, 3", "ok") + INJECTED,
    "lengths 2 and 3": framed("Content-Length: 2\r\nContent-Length: 3", "ok") + INJECTED,
    "length -2": framed("Content-Length: -2", "ok") + INJECTED,
    "length +2": framed("Content-Length: +2", "ok") + INJECTED,
    "length 2^64+2": framed("Content-Length: 18446744073709551618", "ok") + INJECTED,
    "chunks beside a length": framed("Content-Length: 2\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n") + INJECTED,
    "length beside chunks": framed("Transfer-Encoding: chunked\r\nContent-Length: 400", "2\r\nok\r\n0\r\n\r\n") + INJECTED,
    "TE gzip, chunked": framed("Transfer-Encoding: gzip, chunked", "2\r\nok\r\n0\r\n\r\n") + INJECTED,
    "TE chunked, gzip": framed("Transfer-Encoding: chunked, gzip", "2\r\nok\r\n0\r\n\r\n") + INJECTED,
    "TE gzip": framed("Transfer-Encoding: gzip", "ok") + INJECTED,
    "TE identity": framed("Transfer-Encoding: identity\r\nContent-Length: 2", "ok") + INJECTED,
    "TE xchunked": framed("Transfer-Encoding: xchunked", "2\r\nok\r\n0\r\n\r\n") + INJECTED,
    "TE twice": framed("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "2\r\nok\r\n0\r\n\r\n") + INJECTED,
    "a bad chunk size": framed("Transfer-Encoding: chunked", "2\r\nok\r\nzz\r\n") + INJECTED,
    "a chunk size that overflows": framed("Transfer-Encoding: chunked", "ffffffffffffffffff\r\nok") + INJECTED,
    "a chunk without its end": framed("Transfer-Encoding: chunked", "2\r\nokX\r\n0\r\n\r\n") + INJECTED,
    "a space before the colon": framed("Content-Length : 2", "ok") + INJECTED,
    "a folded length": framed("Content-Length:\r\n 2", "ok") + INJECTED,
    "NUL in a header": framed("X: a\0b\r\nContent-Length: 2", "ok") + INJECTED,
    "bare LF": framed("X: a\nContent-Length: 2", "ok") + INJECTED,
    "bare CR": framed("X: a\rContent-Length: 2", "ok") + INJECTED,
    "no status line": POISON + "\r\n\r\n" + INJECTED,
    "status 000": own().replace("200", "000") + INJECTED,
    "status 99": own().replace("200", "99") + INJECTED,
    "status 1000": own().replace("200", "1000") + INJECTED,
    "status -1": own().replace("200", "-1") + INJECTED,
    "HTTP/2.0": own().replace("HTTP/1.1", "HTTP/2.0") + INJECTED,
    "h2 settings": "\0\0\0\4\0\0\0\0\0" + INJECTED,
    "101 without an upgrade request": "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" + INJECTED,
    "100 without end": "HTTP/1.1 100 Continue\r\n\r\n" * 5000,
    "103 without end": f"HTTP/1.1 103 Early Hints\r\nLink: <{'x' * 200}>\r\n\r\n" * 5000 + INJECTED,
    "199, then the response": "HTTP/1.1 199 X\r\n\r\n" + own() + INJECTED,
    "a header of 200 KiB": framed("X: " + "y" * 200_000 + "\r\nContent-Length: 2", "ok") + INJECTED,
    "5000 headers": framed("".join(f"X{n}: y\r\n" for n in range(5000)) + "Content-Length: 2", "ok") + INJECTED,
    "nothing": "",
}
# Truncated responses: the client must be able to tell that they are.
CUT = {
    "in the head": own()[:30],
    "in a body with a length": own()[:-3],
    "in a chunk": STREAM_HEAD.decode() + "50\r\ndata: x",
    "between chunks": STREAM,
    "before the last line end": OWN_STREAM[:-2],
    "in a chunk's size": STREAM_HEAD.decode() + "5",
}


class Poisoner(Upstream):
    """Sends `first`, and `later` after a pause, for paths with /poison; a proper response otherwise."""

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
    """Checks the responses of the next clients, without a pause and a few milliseconds later."""
    for number in range(count):
        response = await ask(server, "GET", f"/l0/victim/{number}", timeout=5)
        require(
            POISON not in response.text and POISON not in str(response.headers),
            f"{why}: the next client got {response.text[:60]!r}",
        )
        require(
            response.status == 200 and response.text == f"</victim/{number}>",
            f"{why}: the next client got {response.status} {response.text[:60]!r}",
        )
        await asyncio.sleep(0.005 * number)


async def poisoned(server, upstream, name, first, later="", pause=0.0, wait=0.0, method="GET"):
    """Sends one poisoned response and checks the next clients; returns what the first client got."""
    upstream.first, upstream.later, upstream.pause = first, later, pause
    async with await Connection.open(server) as connection:
        await connection.send(request(method, "/l0/poison"))
        try:
            response = await connection.response(method, 5)
        except (Malformed, TimeoutError) as error:
            require(isinstance(error, TimeoutError), f"{name}: the client got {error}")
            response = None
        if wait:
            await asyncio.sleep(wait)
        await victims(server, name)
    return response


@attack("the next clients get their own answers")
async def bytes_behind_an_response(kit):
    """Sends excess bytes after the response, in the same packet and milliseconds later, with and without a length."""
    async with Poisoner() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        for _ in range(kit.few(2, 20)):
            for name, sent in AFTER.items():
                response = await poisoned(server, upstream, name, sent)
                require(response is not None and POISON not in response.text, f"{name}: {response and response.text[:80]!r}")
            for pause in (0.005, 0.03):
                response = await poisoned(server, upstream, "a late response", own(), INJECTED, pause, pause + 0.03)
                require(response.text == "own answer", f"got {response.text!r}")
    return f"{len(AFTER) + 2} kinds of excess bytes, none delivered"


@attack("one response or a 502, and the next clients get their own")
async def responses_that_two_readers_end_differently(kit):
    """Sends responses with odd framing, odd status lines, interim responses without end, and none."""
    got = {}
    more = '\n[timeouts]\nfirst_byte = "2s"\nupstream_idle = "1s"\n'
    async with Poisoner() as upstream, kit.citetap("workers = 1" + more + route("l0", upstream.port)) as server:
        wrong = []
        for name, sent in ODD.items():
            upstream.ends = name == "nothing"
            try:
                response = await poisoned(server, upstream, name, sent)
                if response is not None:
                    got[response.status] = got.get(response.status, 0) + 1
                    # Without a length the response ends with the connection, so all bytes belong to it.
                    unframed = name in ("TE gzip", "TE xchunked", "TE chunked, gzip", "TE identity")
                    require(
                        unframed or POISON not in response.text or not response.complete,
                        f"{name}: {response.status} {response.text[:80]!r}",
                    )
                    require(
                        len(response.all("content-length") + response.all("transfer-encoding")) <= 1,
                        f"{name}: {response.headers}",
                    )
                    require(response.status != 101, f"{name}: status {response.status}")
            except Unexpected as error:
                wrong.append(str(error))
    require(not wrong, "; ".join(wrong))
    return f"statuses {got}"


@attack("a cut response is cut for the client too")
async def responses_that_are_cut(kit):
    """Closes upstream connections in the middle of responses."""
    async with Poisoner() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        upstream.ends = True
        for name, sent in CUT.items():
            response = await poisoned(server, upstream, name, sent)
            require(
                response is not None and (response.status == 502 or not response.complete),
                f"{name}: looks complete, {response.status}",
            )
    return f"{len(CUT)} cuts seen as cuts"


@attack("HEAD has no body, and nothing of one reaches the next client")
async def head_answered_with_a_body(kit):
    """Answers HEAD with a body, which the next client of that connection would get as its response."""
    async with Poisoner() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        for sent in (own() + INJECTED, INJECTED, OWN_STREAM, framed("Content-Length: 0", "") + INJECTED):
            async with await Connection.open(server) as connection:
                await connection.send(request("HEAD", "/l0/poison") + request("GET", "/l0/victim/9"))
                upstream.first = sent
                head = await connection.response("HEAD", 5)
                after = await connection.response("GET", 5)
                require(head.status == 200, f"HEAD got {head.status}")
                require(after and after.text == "</victim/9>", f"then {after and after.text[:60]!r}")
            await victims(server, "HEAD")
    return "4 bodies dropped"


@attack("the next clients get their own answers")
async def responses_before_the_request(kit):
    """Sends a response as soon as the connection opens, and the real one afterwards."""

    async def eager(reader, writer):
        writer.write(INJECTED.encode())
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
            response = await ask(server, "GET", f"/l0/victim/{number}")
            # citetap drops what arrives before it has written the request; after that it cannot distinguish the bytes from a
            # response. Either way no other client gets them, and the bytes after them are never delivered.
            require(
                f"</victim/{number}>" in response.text or POISON in response.text or response.status == 502,
                f"got {response.text[:60]!r}",
            )
            statuses.append(response.status)
    return f"{statuses.count(200)} responses, {statuses.count(502)} times 502"


@attack("the rest of the body is not sent as another request, and the connection is not used again")
async def early_responses_to_half_a_request(kit):
    """Answers a request head while the body is still being sent."""

    async def early(received, writer):
        if "/early" in received.path:
            writer.write(with_length("early"))
            await writer.drain()

    async with Upstream(on_head=early) as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        hidden = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
        for number in range(kit.few(10, 100)):
            async with await Connection.open(server) as connection:
                await connection.send(request("POST", "/l0/early", [("Content-Length", str(len(hidden) + 5))]) + b"hello")
                response = await connection.response(timeout=5)
                require(response.text == "early", f"got {response.status} {response.text[:40]!r}")
                await asyncio.sleep(0.002)
                await connection.send(hidden)
            path = f"/l0/length/{number}"
            response = await ask(server, "GET", path)
            require(response.text == f"<GET {path[3:]}>", f"the next client got {response.text[:60]!r}")
        require(
            not upstream.garbage and not [one for one in upstream.received if "smuggled" in one.path],
            f"the upstream read {upstream.garbage[:1]}",
        )
    return "connections with incomplete requests were closed"


@attack("every client gets the response that names it")
async def many_clients_on_a_poisoned_pool(kit):
    """Runs many clients at once on one pool; every fourth gets a poisoned response."""
    async with Poisoner() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        upstream.first = own() + INJECTED
        wrong = []

        async def client(number):
            for turn in range(kit.few(6, 40)):
                if number % 4 == 0:
                    response = await ask(server, "GET", "/l0/poison")
                    expected = "own answer"
                else:
                    response = await ask(server, "GET", f"/l0/victim/{number}-{turn}")
                    expected = f"</victim/{number}-{turn}>"
                if response.text != expected:
                    wrong.append((expected, response.status, response.text[:60]))

        await asyncio.gather(*(client(number) for number in range(kit.few(24, 64))))
        require(not wrong, f"{wrong[:2]}")
    return "all their own"
