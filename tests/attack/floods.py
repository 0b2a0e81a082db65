"""Floods of HTTP/2 frames, each of which costs the server more than the client unless it counts them."""

import asyncio
import struct

from bombs import watched
from h2wire import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    PUSH,
    RST,
    SETTINGS,
    WINDOW,
    Http2,
    block,
    field,
    frame,
    number,
    pseudo,
)
from kit import MIB, attack, eventually, require, route
from upstreams import Upstream, plain_or_stream
from wire import Connection, ask

GROWTH = 48 * MIB
PER_STREAM = 64 * 1024


async def slowly(received, writer):
    await asyncio.sleep(0.2)
    await plain_or_stream(received, writer)


async def flooded(kit, name, flood, toml="", most=None, growth=GROWTH):
    """Runs `flood(client)` on several connections; then checks that others are served and the upstream got few requests."""
    async with Upstream(slowly) as upstream, kit.citetap(toml + route("l0", upstream.port)) as server:
        async with watched(server, name, growth):

            async def one():
                async with await Http2.open(server) as client:
                    try:
                        async with asyncio.timeout(20):
                            await flood(client)
                    except (OSError, TimeoutError):
                        pass
                    # The flood does not wait for what the server sends, so read that now.
                    await client.until(lambda: client.goaway is not None, 0.5)
                    # A TCP reset may arrive before the GOAWAY.
                    return client.goaway if client.goaway is not None or not client.ended else "closed"

            ended = await asyncio.gather(*(one() for _ in range(kit.few(2, 8))))
        response = await ask(server, "GET", "/l0/length/1", timeout=5)
        require(response.status == 200, f"{name}: another client got {response.status}")
        require(most is None or len(upstream.received) <= most, f"{name}: {len(upstream.received)} requests at the upstream")
        require(await eventually(lambda: upstream.open < 20, 4), f"{name}: {upstream.open} upstream connections are left")
        return ended, len(upstream.received)


@attack("the connection ends, few requests reach the upstream, others are served")
async def rapid_reset(kit):
    """Opens streams and resets each at once (CVE-2023-44487)."""
    count = kit.few(10_000, 100_000)

    async def flood(client):
        for _ in range(count // 100):
            for _ in range(100):
                client.reset(client.request("GET", "/l0/length/1"))
            await client.flush()
            if client.ended:
                return

    ended, reached = await flooded(kit, "rapid reset", flood)
    require(None not in ended and reached < 1000, f"ended by {ended}; {reached} requests reached the upstream")
    return f"ended by {ended}, {reached} requests of {count * len(ended)} at the upstream"


@attack("the connection ends, or the server's resets are bounded; others are served")
async def resets_that_the_server_must_send(kit):
    """Sends malformed streams, which the server has to reset (MadeYouReset, CVE-2025-8671)."""
    count = kit.few(5000, 50_000)
    bad = [
        lambda client, stream: client.write(frame(WINDOW, 0, stream, struct.pack(">I", 0))),
        lambda client, stream: client.write(frame(PRIORITY, 0, stream, struct.pack(">IB", stream, 1))),
        lambda client, stream: client.write(frame(WINDOW, 0, stream, struct.pack(">I", 0x7FFFFFFF))),
    ]

    async def flood(client):
        for turn in range(count // 100):
            for number_ in range(100):
                stream = client.request("POST", "/l0/length/1", end=False)
                bad[(turn + number_) % 3](client, stream)
            await client.flush()
            if client.ended:
                return

    ended, reached = await flooded(kit, "server resets", flood)
    return f"ended by {ended}, {reached} requests at the upstream"


@attack("bounded memory, others are served")
async def frames_that_need_a_reply(kit):
    """Floods with SETTINGS, PING, empty DATA, WINDOW_UPDATE, PRIORITY and unknown frames, without reading the replies."""
    floods = {
        "settings": frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 100)),
        "empty settings": frame(SETTINGS, 0, 0),
        "acknowledgements": frame(SETTINGS, ACK, 0),
        "pings": frame(PING, 0, 0, b"12345678"),
        "windows": frame(WINDOW, 0, 0, struct.pack(">I", 1)),
        "priorities": frame(PRIORITY, 0, 5, b"\0\0\0\0\1"),
        "unknown frames": frame(0xBE, 0, 0, b"x" * 100),
        "large unknown frames": frame(0xBE, 0, 0, b"x" * 16_000),
        "resets of nothing": frame(RST, 0, 7, b"\0\0\0\x08"),
        "table sizes": frame(SETTINGS, 0, 0, struct.pack(">HI", 1, 0) + struct.pack(">HI", 1, 1 << 30)),
        "pushes": frame(PUSH, END_HEADERS, 1, b"\0\0\0\2"),
    }
    got = {}
    for name, one in floods.items():

        async def flood(client, one=one):
            # Stop reading what the server sends.
            client.reading.cancel()
            for _ in range(kit.few(20, 400)):
                client.write(one * 1000)
                await asyncio.wait_for(client.writer.drain(), 1)

        async def empty_data(client):
            stream = client.request("POST", "/l0/length/1", end=False)
            for _ in range(kit.few(20, 400)):
                client.write(frame(DATA, 0, stream) * 1000)
                await client.flush()

        got[name] = (await flooded(kit, name, flood))[0]
    await flooded(kit, "empty data", empty_data)
    return f"{len(floods) + 1} floods"


@attack("the connection ends at the limit of the header list")
async def continuation_without_end(kit):
    """Sends a header block in CONTINUATION frames that never ends (CVE-2024-24549 and others)."""

    async def flood(client):
        client.write(frame(HEADERS, END_STREAM, 1, block(pseudo("GET", "/l0/length/1"))))
        piece = frame(CONTINUATION, 0, 1, field("x", "y" * 1000) * 16)
        for _ in range(kit.few(2000, 20_000)):
            client.write(piece)
            await client.flush()
            if client.ended:
                return

    async def empty(client):
        client.write(frame(HEADERS, END_STREAM, 1, block(pseudo("GET", "/l0/length/1"))))
        for _ in range(kit.few(200, 2000)):
            client.write(frame(CONTINUATION, 0, 1) * 1000)
            await client.flush()
            if client.ended:
                return

    got = []
    for name, one in (("continuation", flood), ("empty continuation", empty)):
        ended, reached = await flooded(kit, name, one, '[timeouts]\nrequest_headers = "2s"\n', most=1)
        got.append(f"{name}: ended by {ended}")
    return "; ".join(got)


@attack("431 or a reset; memory bounded")
async def header_lists_that_grow(kit):
    """References one large HPACK table entry thousands of times, and sends thousands of cookie crumbs."""

    async def table(client):
        # Literal with incremental indexing; then its index, 62, repeatedly.
        large = b"\x40" + number(1, 7) + b"x" + number(3800, 7) + b"y" * 3800
        client.write(frame(HEADERS, END_HEADERS | END_STREAM, 1, block(pseudo("GET", "/l0/length/1")) + large))
        client.next = 3
        for _ in range(kit.few(100, 2000)):
            client.open_stream(pseudo("GET", "/l0/length/1"), more=b"\xbe" * 16_000)
            await client.flush()
            if client.ended:
                return
        await asyncio.sleep(0.3)

    async def crumbs(client):
        for _ in range(kit.few(100, 2000)):
            client.open_stream([*pseudo("GET", "/l0/length/1")], more=field("cookie", "a") * 1500)
            await client.flush()
            if client.ended:
                return
        await asyncio.sleep(0.3)

    got = []
    for name, one in (("table", table), ("crumbs", crumbs)):
        ended, reached = await flooded(kit, name, one, most=4)
        got.append(f"{name}: ended by {ended}, {reached} at the upstream")
    return "; ".join(got)


@attack("1000 streams at most at once, the rest refused; others are served")
async def more_streams_than_announced(kit):
    """Opens far more streams than SETTINGS_MAX_CONCURRENT_STREAMS allows."""

    async def flood(client):
        for _ in range(3000):
            client.request("POST", "/l0/length/1", end=False)
        await client.flush()
        await asyncio.sleep(1)

    streams = kit.few(2, 8) * 1000
    ended, reached = await flooded(kit, "streams", flood, most=streams + 1, growth=streams * PER_STREAM)
    return f"ended by {ended}, {reached} at the upstream"


@attack("closed")
async def invalid_prefaces_and_frames(kit):
    """Sends wrong prefaces, frames of odd sizes and on odd streams."""
    wrong = {
        "a frame over 16 KiB": frame(DATA, 0, 1, b"x" * 20_000),
        "settings of 5 bytes": frame(SETTINGS, 0, 0, b"12345"),
        "a ping of 7 bytes": frame(PING, 0, 0, b"1234567"),
        "settings on a stream": frame(SETTINGS, 0, 1),
        "data on stream 0": frame(DATA, 0, 0, b"x"),
        "headers on an even stream": frame(HEADERS, 5, 2, block(pseudo("GET", "/"))),
        "continuation alone": frame(CONTINUATION, 4, 1, b"x"),
        "headers in a block": frame(HEADERS, 1, 1, b"\x82") + frame(HEADERS, 5, 3, b"\x82"),
        "a window of 2^31": frame(WINDOW, 0, 0, struct.pack(">I", 0x7FFFFFFF)) * 2,
        "padding over the frame": frame(HEADERS, 0xD, 1, b"\xff\x82"),
        "HPACK index 0": frame(HEADERS, 5, 1, b"\x80"),
        "HPACK index 10000": frame(HEADERS, 5, 1, number(10_000, 7, 0x80)),
        "an endless integer": frame(HEADERS, 5, 1, b"\xff" + b"\xff" * 50),
        "a table of 1 GiB": frame(HEADERS, 5, 1, number(1 << 30, 5, 0x20)),
        "a broken Huffman code": frame(HEADERS, 5, 1, b"\x00\x84\xff\xff\xff\xff\x00"),
        "goaway, and more": frame(GOAWAY, 0, 0, b"\0" * 8) + frame(DATA, 0, 0),
    }
    async with Upstream() as upstream, kit.citetap(
        '[timeouts]\nrequest_headers = "1s"\n' + route("l0", upstream.port)
    ) as server:
        for name, sent in wrong.items():
            async with await Connection.open(server) as connection:
                await connection.send(PREFACE + frame(SETTINGS, 0, 0) + sent)
                require(await connection.is_closed(4), f"{name}: still open")
        for preface in (PREFACE[:-1] + b"X", b"PRI * HTTP/2.0\r\nHost: x\r\n\r\n", PREFACE[:20]):
            async with await Connection.open(server) as connection:
                await connection.send(preface)
                require(await connection.is_closed(4), f"preface {preface!r}: still open")
        require(not upstream.received and (await ask(server, "GET", "/l0/length/1")).status == 200, "something was relayed")
    return f"{len(wrong) + 3} closed"
