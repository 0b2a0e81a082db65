"""Details of HTTP that proxies get wrong: path tricks, odd Connection headers, bodies of GET, resets of h2 streams."""

import asyncio

from h2wire import Http2
from kit import attack, eventually, require, route
from upstreams import Upstream, with_length
from wire import HOST, ask, raw, status_of


@attack("400 for each")
async def paths_that_leave_their_base(kit):
    """Tries to leave the upstream's base path by dot segments in every spelling, path parameters among them."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        passed = []
        for segment in (
            "..",
            "%2e%2e",
            ".%2E",
            "%2e.",
            "..;",
            "..;a=b",
            "%2e%2e;x",
            "..%3b",
            "..%3B/",
            "%2e%2e%3bx",
            "..%2f",
            "..%2Fx",
            "..%5c",
            "..%5C",
            "..\\x",
            "a\\..",
            "..%2f..%2f",
            "a%2f..",
            "a%2f%2e%2e%2fb",
            "a%5c..",
            "%2f..",
            "%5c..",
            "%2f%2e%2e",
        ):
            reply = await raw(
                server, f"GET /l0/{segment}/secret HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n".encode()
            )
            if status_of(reply) != 400:
                passed.append(f"{segment} {status_of(reply)}")
        require(not passed, f"relayed: {', '.join(passed)}")
        for path in ("/a..b", "/...", "/.well-known", "/a.%2eb", "/x..;y"):
            response = await ask(server, "GET", "/l0/length" + path)
            require(response.status == 200, f"{path} is no dot segment and got {response.status}")
    return "23 refused, names with dots relayed"


@attack("400")
async def connection_header_that_is_not_ascii(kit):
    """Names headers in a Connection header with bytes over 127, which a lenient parser skips as a whole."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        for value in ("x-hop, \xff", "\xe9", "x-hop\xa0"):
            reply = await raw(
                server,
                f"GET /l0/length/1 HTTP/1.1\r\nHost: {HOST}\r\nConnection: {value}\r\nX-Hop: 1\r\n\r\n".encode("latin-1"),
                timeout=1,
            )
            require(
                status_of(reply) == 400,
                f"{value!r}: {reply[:30]!r}, X-Hop at the upstream: {[one.all('x-hop') for one in upstream.received]}",
            )
    return "400"


@attack("the body arrives, or the request is refused")
async def chunked_get(kit):
    """Sends GET, HEAD, DELETE and OPTIONS with chunked bodies and with a length."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        lost = []
        for method in ("GET", "HEAD", "DELETE", "OPTIONS", "PUT", "QUERY"):
            for framed in ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "Content-Length: 5\r\n\r\nhello"):
                before = len(upstream.received)
                reply = await raw(
                    server, f"{method} /l0/length/1 HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n{framed}".encode()
                )
                bodies = [bytes(one.body) for one in upstream.received[before:] if one.complete]
                if not (bodies == [b"hello"] or (not bodies and 400 <= status_of(reply) < 500)):
                    lost.append(f"{method} {framed[:8]} {status_of(reply)} {bodies}")
        require(not lost, f"lost: {lost}")
    return "relayed whole or refused"


@attack("the upstream's request is aborted within 1 s")
async def h2_stream_reset_in_its_body(kit):
    """Resets an h2 stream in the middle of its request body: the upstream must neither wait nor take it for complete."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        async with await Http2.open(server) as client:
            for length in (None, 100):
                upstream.received.clear()
                more = [("content-length", str(length))] if length else []
                stream = client.request("POST", "/l0/length/1", more, end=False)
                client.data(stream, b"hello")
                await client.flush()
                require(
                    await eventually(lambda: upstream.received and len(upstream.received[0].body) >= 5, 3), "nothing arrived"
                )
                client.reset(stream)
                await client.flush()
                gone = await eventually(lambda: upstream.received[0].gone or upstream.received[0].complete, 1)
                require(
                    gone and not upstream.received[0].complete,
                    f"after 1 s: whole {upstream.received[0].complete}, aborted {upstream.received[0].gone}",
                )
    return "aborted"


@attack("the upstream's response is cancelled within 1 s")
async def h2_stream_reset_in_its_response(kit):
    """Resets an h2 stream while its response is being streamed."""
    gone = []

    async def endless(received, writer):
        try:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            while True:
                writer.write(b": x\n\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        finally:
            gone.append(received.path)

    async with Upstream(endless) as upstream, kit.citetap(route("l0", upstream.port)) as server:
        async with await Http2.open(server) as client:
            stream = client.request("GET", "/l0/endless")
            await client.flush()
            await client.head(stream)
            client.reset(stream)
            await client.flush()
            require(await eventually(lambda: gone, 1), "the upstream still sends after 1 s")
    return "cancelled"


@attack("one response for each, without a body for HEAD, 204 and 304")
async def responses_without_bodies(kit):
    """Relays bodiless statuses, and looks for bytes that a client would take for the next response."""

    async def status(received, writer):
        code = received.path.rsplit("/", 1)[-1]
        if code in ("204", "304"):
            writer.write(f'HTTP/1.1 {code} X\r\nETag: "a"\r\n\r\n'.encode())
        else:
            writer.write(with_length("x", f"{code} X"))

    async with Upstream(status) as upstream, kit.citetap(route("l0", upstream.port)) as server:
        sent = "".join(f"GET /l0/{code} HTTP/1.1\r\nHost: {HOST}\r\n\r\n" for code in (204, 304, 200, 500, 204))
        reply = await raw(server, sent.encode(), timeout=1)
        require(reply.count(b"HTTP/1.1 ") == 5, f"{reply.count(b'HTTP/1.1 ')} responses to 5 requests")
        empty = [part for part in reply.split(b"HTTP/1.1 ")[1:] if part[:3] in (b"204", b"304")]
        require(all(part.endswith(b"\r\n\r\n") for part in empty), "a body where none may be")
    return "5 responses"
