"""HTTP/2 to HTTP/1.1: no part of an h2 request may become framing, a header or a second request upstream."""

import asyncio

from h2wire import Http2, pseudo
from kit import attack, require, route
from upstreams import Upstream
from wire import ask

HIDDEN = "GET /hidden HTTP/1.1\r\nHost: x\r\n\r\n"
# Name: fields and body. Each is malformed by RFC 9113 8.2 and 8.3.
MALFORMED = {
    "transfer-encoding": ([*pseudo("POST", "/l0/p"), ("transfer-encoding", "chunked")], "0\r\n\r\n" + HIDDEN),
    "connection": ([*pseudo("GET", "/l0/p"), ("connection", "keep-alive")], None),
    "keep-alive": ([*pseudo("GET", "/l0/p"), ("keep-alive", "timeout=5")], None),
    "upgrade": ([*pseudo("GET", "/l0/p"), ("upgrade", "websocket")], None),
    "te that is not trailers": ([*pseudo("GET", "/l0/p"), ("te", "chunked")], None),
    "CRLF in a value": ([*pseudo("GET", "/l0/p"), ("x", "a\r\ntransfer-encoding: chunked")], None),
    "LF in a value": ([*pseudo("GET", "/l0/p"), ("x", "a\nx-evil: 1")], None),
    "CR in a value": ([*pseudo("GET", "/l0/p"), ("x", "a\rx-evil: 1")], None),
    "NUL in a value": ([*pseudo("GET", "/l0/p"), ("x", "a\0b")], None),
    "CRLF in a name": ([*pseudo("GET", "/l0/p"), ("x\r\nx-evil", "1")], None),
    "a colon in a name": ([*pseudo("GET", "/l0/p"), ("x-evil: 1", "2")], None),
    "a space in a name": ([*pseudo("GET", "/l0/p"), ("transfer-encoding ", "chunked")], None),
    "upper case in a name": ([*pseudo("GET", "/l0/p"), ("X-Evil", "1")], None),
    "an empty name": ([*pseudo("GET", "/l0/p"), ("", "1")], None),
    "CRLF in the path": (pseudo("GET", "/l0/p HTTP/1.1\r\nx-evil: 1\r\n\r\n" + HIDDEN), None),
    "a space in the path": (pseudo("GET", "/l0/p HTTP/1.1"), None),
    "an empty path": (pseudo("GET", ""), None),
    "a path without a slash": (pseudo("GET", "l0/p"), None),
    "CRLF in the method": (pseudo("GET /hidden HTTP/1.1\r\nHost: x\r\n\r\nPOST", "/l0/p"), None),
    "a space in the method": (pseudo("GET /hidden", "/l0/p"), None),
    "CRLF in the authority": (pseudo("GET", "/l0/p", authority="localhost\r\nx-evil: 1"), None),
    "two paths": ([*pseudo("GET", "/l0/p"), (":path", "/l0/q")], None),
    "two methods": ([(":method", "POST"), *pseudo("GET", "/l0/p")], None),
    "no method": (pseudo("GET", "/l0/p")[1:], None),
    "no path": (pseudo("GET", "/l0/p")[:-1], None),
    "an unknown pseudo field": ([*pseudo("GET", "/l0/p"), (":evil", "1")], None),
    "a pseudo field after others": ([*pseudo("GET", "/l0/p")[:-1], ("x", "1"), (":path", "/l0/p")], None),
    "a status": ([*pseudo("GET", "/l0/p"), (":status", "200")], None),
    "length shorter than the body": ([*pseudo("POST", "/l0/p"), ("content-length", "0")], HIDDEN),
    "length longer than the body": ([*pseudo("POST", "/l0/p"), ("content-length", "100")], "hello"),
    "length that is none": ([*pseudo("POST", "/l0/p"), ("content-length", "+5")], "hello"),
    "two lengths": ([*pseudo("POST", "/l0/p"), ("content-length", "5"), ("content-length", "6")], "hello"),
}


@attack("the stream or the connection ends, and nothing is executed upstream")
async def malformed_requests_that_would_smuggle(kit):
    """Sends h2 requests with line ends, framing headers, doubled pseudo fields and wrong lengths."""
    async with Upstream() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        passed = []
        for name, (fields, body) in MALFORMED.items():
            before = len(upstream.received)
            async with await Http2.open(server) as client:
                stream = client.open_stream(fields, end=body is None)
                if body is not None:
                    client.data(stream, body.encode(), end=True)
                await client.flush()
                status = await client.head(stream, 1)
            await asyncio.sleep(0.01)
            executed = [one for one in upstream.received[before:] if one.complete]
            # Bodies are streamed: citetap relays the announced length of a longer body before it sees the rest.
            if name == "length shorter than the body" and executed and not executed[0].body:
                executed = []
            if executed or upstream.garbage or (status or -1) in range(200, 400):
                passed.append(
                    f"{name}: {status}, executed {[(one.method, one.path, one.headers[-1:]) for one in executed]} {upstream.garbage}"
                )
                upstream.garbage.clear()
            response = await ask(server, "GET", "/l0/length/1")
            require(response.text == "<GET /length/1>", f"after {name} the next client got {response.text[:60]!r}")
        require(not passed, f"{'; '.join(passed)}")
    return f"{len(MALFORMED)} refused"


@attack("exactly the requests sent, with exactly their bodies")
async def bodies_that_are_requests(kit):
    """Sends well-formed h2 requests whose bodies are HTTP/1.1 requests, with and without a length, in many DATA frames."""
    async with Upstream() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        body = (HIDDEN * 50).encode()
        async with await Http2.open(server) as client:
            for size in (1, 7, 1000, len(body)):
                for more in ([], [("content-length", str(len(body)))]):
                    stream = client.request("POST", "/l0/length/1", more, end=False)
                    for at in range(0, len(body), size):
                        client.data(stream, body[at : at + size], at + size >= len(body))
                    await client.flush()
                    require(await client.head(stream) == 200, "not answered")
        require(
            not upstream.garbage and all(bytes(one.body) == body and one.path == "/length/1" for one in upstream.complete()),
            f"{upstream.garbage} {[one.path for one in upstream.received]}",
        )
        require(len(upstream.complete()) == 8, f"{len(upstream.complete())} requests")
    return "8 bodies stayed bodies"


@attack("the host of the configuration, once")
async def hosts_of_an_h2_request(kit):
    """Sends :authority and Host that differ."""
    async with Upstream() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port)) as server:
        async with await Http2.open(server) as client:
            statuses = []
            for fields in (
                [*pseudo("GET", "/l0/length/1"), ("host", "127.0.0.1")],
                [*pseudo("GET", "/l0/length/1"), ("host", "a"), ("host", "b")],
                [one for one in pseudo("GET", "/l0/length/1") if one[0] != ":authority"] + [("host", "localhost")],
            ):
                stream = client.open_stream(fields)
                await client.flush()
                statuses.append(await client.head(stream, 2))
        hosts = [one.all("host") for one in upstream.received]
        require(all(host == [f"127.0.0.1:{upstream.port}"] for host in hosts), f"{hosts}")
    return f"statuses {statuses}"
