"""Crowds: clients that send nothing, send slowly, do not read, or disconnect."""

import asyncio
import contextlib
import resource
import time

from bombs import watched
from h2wire import Http2
from kit import MIB, attack, eventually, mib, require, route
from upstreams import STREAM_HEAD, Upstream, chunk, references, text
from wire import HOST, Connection, ask, request

SHORT_TIMEOUTS = '[timeouts]\nrequest_headers = "1s"\nclient_stall = "2s"\n'
PER_STREAM = 64 * 1024


async def crowd(server, size, **how):
    """Opens `size` connections, or as many as this process's file limit allows."""
    size = min(size, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200) // 3)
    return await asyncio.gather(*(Connection.open(server, **how) for _ in range(size)))


def close_all(connections):
    for connection in connections:
        connection.close()


@attack("closed after timeouts.request_headers, others are served meanwhile")
async def clients_that_send_nothing(kit):
    """Opens connections and sends nothing, half a request line, or half a preface of h2."""
    async with Upstream() as upstream, kit.citetap(SHORT_TIMEOUTS + route("l0", upstream.port)) as server:
        async with watched(server, "idle connections"):
            clients = await crowd(server, kit.few(300, 4000))
            for number, client in enumerate(clients):
                await client.send(
                    (b"", b"GET /l0/len", b"PRI * HTTP/2.0\r\n", b"GET /l0/1 HTTP/1.1\r\nHost: localhost\r\nX: ")[number % 4]
                )
            began = time.monotonic()
            closed = await asyncio.gather(*(client.is_closed(6) for client in clients))
            took = time.monotonic() - began
        close_all(clients)
        require(all(closed), f"{closed.count(False)} of {len(closed)} are still open after 6 s")
        require(await eventually(lambda: server.descriptors() < 80, 3), f"{server.descriptors()} descriptors are left")
    return f"{len(clients)} closed within {took:.1f} s"


@attack("closed after timeouts.request_headers, however regularly a byte comes")
async def headers_byte_by_byte(kit):
    """Sends a request's head one byte at a time (slowloris), over HTTP/1.1 and in h2 CONTINUATION frames."""
    async with Upstream() as upstream, kit.citetap(SHORT_TIMEOUTS + route("l0", upstream.port)) as server:
        clients = await crowd(server, kit.few(50, 1000))
        head = request("GET", "/l0/length/1", [("X", "y" * 200)])
        began = time.monotonic()

        async def drip(client):
            for at in range(len(head)):
                await client.send(head[at : at + 1])
                if await client.is_closed(0.1):
                    return time.monotonic() - began
            return None

        times = await asyncio.gather(*map(drip, clients))
        close_all(clients)
        require(
            None not in times and not upstream.received, f"{times.count(None)} got through, {len(upstream.received)} requests"
        )
    return f"closed within {max(times):.1f} s"


@attack("408 or closed after a bounded time, or other clients served regardless")
async def bodies_byte_by_byte(kit):
    """Sends bodies one byte at a time and never finishes: other clients are served, and a disconnect frees the upstream."""
    async with Upstream() as upstream, kit.citetap(SHORT_TIMEOUTS + route("l0", upstream.port)) as server:
        clients = await crowd(server, kit.few(50, 500))
        for client in clients:
            await client.send(f"POST /l0/length/1 HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 1000\r\n\r\nx".encode())
        for _ in range(5):
            await asyncio.gather(*(client.send(b"x") for client in clients))
            response = await ask(server, "GET", "/l0/length/2", timeout=2)
            require(response.status == 200, f"another client got {response.status}")
        close_all(clients)
        require(await eventually(lambda: upstream.open <= 4, 2), f"{upstream.open} upstream connections are left")
        require(not [one for one in upstream.complete() if one.method == "POST"], "half a body was taken for whole")
    return "others were served"


async def firehose(received, writer):
    """Sends frames endlessly, as fast as the proxy reads them."""
    writer.write(STREAM_HEAD + chunk(references("m")))
    piece = chunk(text("m", "一" * 700 + "[1]") * 8)
    while True:
        writer.write(piece)
        await writer.drain()


@attack("held_total and 64 KiB each at most; dropped after timeouts.client_stall")
async def clients_that_do_not_read(kit):
    """Requests endless streams in every dialect and reads nothing."""
    total = kit.few(16, 64)
    toml = f'[limits]\nframe = "1MiB"\nheld_total = "{total}MiB"\n[timeouts]\nclient_stall = "{kit.few(2, 4)}s"\n'
    kinds = {"n0": "", "n1": 'markers = "sup"\ninject = "live"\n', "n2": 'profile = "openai"\n', "n3": 'profile = "ai-sdk"\n'}
    got = {}
    async with Upstream(firehose) as upstream, kit.citetap(
        toml + "".join(route(name, upstream.port, more) for name, more in kinds.items())
    ) as server:
        for name in ("n0", "n2") if kit.short else kinds:
            before = server.rss()
            clients = await crowd(server, kit.few(100, 1000), buffer=4096)
            server.forget_peak()
            for client in clients:
                await client.send(request("POST", f"/{name}/1", body=b"{}"))
            await asyncio.sleep(kit.few(1.5, 3))
            grown = server.peak() - before
            # Sockets, tasks and allocator overhead: 64 KiB more per stream in an unoptimized build.
            bound = total * MIB + 2 * len(clients) * PER_STREAM + 24 * MIB
            require(grown < bound, f"{name}: {len(clients)} clients took {mib(grown)}, allowed are {mib(bound)}")
            require((await ask(server, "GET", "/healthz", timeout=3)).status == 200, "/healthz failed")
            dropped = await eventually(lambda: upstream.open < 5, 12, 0.1)
            close_all(clients)
            require(dropped, f"{name}: {upstream.open} upstream connections after timeouts.client_stall")
            got[name] = mib(grown)
    return f"{len(clients)} clients each took {got}"


@attack("64 KiB each at most; backpressure reaches the upstream")
async def h2_streams_that_do_not_read(kit):
    """Opens h2 streams with a window of zero, so that no response can be sent."""
    async with Upstream(firehose) as upstream, kit.citetap(route("l0", upstream.port)) as server:
        before = server.rss()
        server.forget_peak()
        streams = 0
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(kit.few(2, 10)):
                client = await stack.enter_async_context(await Http2.open(server, settings=[(4, 0)]))
                for _ in range(100):
                    client.request("GET", "/l0/1")
                    streams += 1
                await client.flush()
            await asyncio.sleep(2)
            grown = server.peak() - before
            require(upstream.connections >= streams * 0.9, f"only {upstream.connections} of {streams} reached the upstream")
            require(grown < 3 * streams * PER_STREAM + 24 * MIB, f"{streams} streams took {mib(grown)}")
            require((await ask(server, "GET", "/healthz", timeout=3)).status == 200, "/healthz failed")
        require(await eventually(lambda: upstream.open == 0, 2), f"{upstream.open} upstream connections are left")
    return f"{streams} streams took {mib(grown)}"


class Silent(Upstream):
    """Reads one request per connection, begins to answer it if the path says so, and notes when the connection ends."""

    def __init__(self):
        super().__init__()
        self.gone = asyncio.Queue()

    async def serve(self, reader, writer):
        self.connections += 1
        self.writers.add(writer)
        try:
            received = await self.read(reader, writer)
            if "/begun" in received.path:
                writer.write(STREAM_HEAD + chunk(references("m")))
            await reader.read()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.writers.discard(writer)
            self.gone.put_nowait(time.monotonic())
            writer.close()


@attack("the upstream's connection is gone within 1 s")
async def clients_that_leave(kit):
    """Disconnects by FIN and by RST: before the first byte, during the response, during the body, with requests pipelined."""
    slowest = 0.0
    async with Silent() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        tried = 0
        for kind, sent in {
            "before the response": request("GET", "/l0/silent"),
            "in the response": request("GET", "/l0/begun"),
            "in the body": request("POST", "/l0/silent", [("Content-Length", "1000")]) + b"x",
            "with a pipelined request": request("GET", "/l0/begun") + request("GET", "/l0/silent"),
            "with 40 KB pipelined": request("GET", "/l0/begun")
            + request("POST", "/l0/silent", [("Content-Length", "100000")])
            + b"x" * 40_000,
        }.items():
            for abort in (False, True):
                for _ in range(kit.few(2, 20)):
                    before = upstream.connections
                    async with await Connection.open(server) as connection:
                        await connection.send(sent)
                        require(
                            await eventually(lambda: upstream.connections > before, 3),
                            f"{kind}: nothing reached the upstream",
                        )
                        await asyncio.sleep(0.03)
                        left = time.monotonic()
                        if abort:
                            connection.abort()
                    try:
                        took = await asyncio.wait_for(upstream.gone.get(), 3) - left
                    except TimeoutError:
                        took = 99
                    require(took < 1, f"{kind} by {'RST' if abort else 'FIN'}: the upstream still waits after {took:.1f} s")
                    slowest = max(slowest, took)
                    tried += 1
    return f"{tried} left, the slowest was noticed after {slowest:.2f} s"


@attack("503 with Retry-After beyond limits.streams, /healthz 200, and new streams afterwards")
async def more_streams_than_allowed(kit):
    """Opens more streams than `limits.streams`."""
    async with Upstream(firehose) as upstream, kit.citetap("[limits]\nstreams = 20\n" + route("l0", upstream.port)) as server:
        clients = await crowd(server, 60)
        for client in clients:
            await client.send(request("GET", "/l0/1"))
        heads = [await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), 5) for client in clients]
        statuses = [int(head.split()[1]) for head in heads]
        require(statuses.count(200) == 20 and statuses.count(503) == 40, f"{statuses.count(200)} and {statuses.count(503)}")
        require(all(b"retry-after" in head.lower() for head in heads if b" 503 " in head[:16]), "503 without Retry-After")
        require((await ask(server, "GET", "/healthz")).status == 200, "/healthz failed")
        close_all(clients)
        require(await eventually(lambda: upstream.open == 0, 2), f"{upstream.open} streams are left")
        async with await Connection.open(server) as connection:
            await connection.send(request("GET", "/l0/1"))
            require(b" 200 " in (await connection.reader.readuntil(b"\r\n"))[:16], "no new stream afterwards")
    return "20 streams, 40 times 503"
