"""Scripted upstreams: they parse requests strictly, record them, and send the response that a case defines."""

import asyncio
import contextlib
import json
import re
from dataclasses import dataclass, field

from wire import LIMIT, Malformed, head_of, read_chunks


@dataclass
class Received:
    """A request as the upstream parsed it. A real upstream would execute it only if it is complete."""

    method: str
    path: str
    headers: list
    body: bytearray = field(default_factory=bytearray)
    trailers: list = field(default_factory=list)
    complete: bool = False
    gone: bool = False

    def all(self, name):
        return [value for key, value in self.headers if key == name]

    def everything(self):
        """The whole request as bytes, to search in."""
        head = [self.method, self.path, *(f"{name}: {value}" for name, value in self.headers), *self.trailers]
        return "\n".join(head).encode("latin-1") + b"\n" + bytes(self.body)


class Upstream:
    """A server on loopback. `respond(received, writer)` writes a response; by default `plain_or_stream`."""

    def __init__(self, respond=None, on_head=None):
        self.respond = respond or plain_or_stream
        self.on_head = on_head
        self.received, self.garbage, self.writers = [], [], set()
        self.connections = 0
        self.server = None

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=LIMIT, backlog=4096)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        self.drop_connections()

    def drop_connections(self):
        """Closes all connections, so that the next request needs a new one."""
        for writer in list(self.writers):
            with contextlib.suppress(Exception):
                writer.close()

    @property
    def open(self):
        return len(self.writers)

    def complete(self, part=""):
        return [received for received in self.received if received.complete and part in received.path]

    async def serve(self, reader, writer):
        self.connections += 1
        self.writers.add(writer)
        try:
            while received := await self.read(reader, writer):
                done = await self.respond(received, writer)
                await writer.drain()
                if done is False:
                    break
        except Malformed as error:
            self.garbage.append(str(error))
        # CancelledError: the case is over; asyncio would print it as an error.
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.writers.discard(writer)
            with contextlib.suppress(Exception):
                writer.close()

    async def read(self, reader, writer):
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise Malformed(f"incomplete head {error.partial[:60]!r}") from error
            return None
        first, headers = head_of(head[:-4])
        line = re.fullmatch(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+) (/[!-~]*|\*) HTTP/1\.1", first)
        if not line or any("\0" in value or "\r" in value or "\n" in value for _, value in headers):
            raise Malformed(f"request {head[:120]!r}")
        received = Received(line[1], line[2], headers)
        self.received.append(received)
        if self.on_head and await self.on_head(received, writer) is False:
            return None
        try:
            await read_request_body(reader, received)
        except (OSError, asyncio.IncompleteReadError):
            received.gone = True
            raise
        received.complete = True
        return received


async def read_request_body(reader, received):
    codings, lengths = received.all("transfer-encoding"), received.all("content-length")
    if codings:
        if [coding.lower() for coding in codings] != ["chunked"] or lengths:
            raise Malformed(f"ambiguous framing: {codings} {lengths}")
        received.trailers = await read_chunks(reader, received.body.extend)
    elif lengths:
        if len(lengths) > 1 or not lengths[0].isdigit():
            raise Malformed(f"ambiguous framing: {lengths}")
        left = int(lengths[0])
        while left:
            piece = await reader.read(min(left, 1 << 16))
            if not piece:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(piece)
            received.body.extend(piece)


def with_length(body, status="200 OK", kind="text/plain", more=""):
    body = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data):
    data = data.encode() if isinstance(data, str) else data
    return b"%x\r\n%s\r\n" % (len(data), data)


def references(ident, count=2, title="资料"):
    """A frame of the Tencent dialect that names sources."""
    found = [
        {"target_id": f"t{n}", "title": f"{title} {n}", "content": f"摘录 {n}", "url": f"https://s{n}.example.com/"}
        for n in range(1, count + 1)
    ]
    return frame(
        {
            "completion_id": ident,
            "processes": {"stage": "finished_internal_searching"},
            "additional_content": {"reference_chunks": found},
        }
    )


def text(ident, content):
    return frame({"completion_id": ident, "processes": {}, "delta_content": content})


def finish(ident):
    return "event:finish\n" + frame({"completion_id": ident, "delta_content": "", "is_stop": True})


def frame(document):
    return f"data:{json.dumps(document, ensure_ascii=False)}\n\n"


def answer_stream(ident, content="第一句[1]。"):
    return references(ident) + text(ident, content) + finish(ident)


async def plain_or_stream(received, writer):
    """Echoes the method and path, so that a response names its request; with `/stream` in the path, as an event stream."""
    named = f"<{received.method} {received.path}>"
    if "/stream" in received.path:
        ident = "m-" + re.sub(r"[^0-9A-Za-z]", "", received.path)[-40:]
        pieces = [references(ident), text(ident, named), finish(ident)]
        writer.write(STREAM_HEAD + b"".join(map(chunk, pieces)) + b"0\r\n\r\n")
    elif received.method == "HEAD":
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(named)}\r\n\r\n".encode())
    else:
        writer.write(with_length(named))
