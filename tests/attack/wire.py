"""A raw HTTP/1.1 client: sends bytes unchanged, and parses responses strictly."""

import asyncio
import contextlib
import re
import socket
import struct

HOST = "localhost"
LIMIT = 64 << 20


class Malformed(Exception):
    """The peer sent something that is not HTTP/1.1."""


class Response:
    """A final response. `complete` is False if the body was cut."""

    def __init__(self, status, headers):
        self.status, self.headers, self.body, self.complete = status, headers, b"", False

    def all(self, name):
        return [value for key, value in self.headers if key == name]

    def header(self, name):
        values = self.all(name)
        return values[0] if values else None

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        import json

        return json.loads(self.body)


def head_of(raw):
    """Splits a head into the first line and the headers, with names in lower case."""
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or re.search(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]", name):
            raise Malformed(f"header line {line[:80]!r}")
        headers.append((name.lower(), value.strip(" \t")))
    return first, headers


async def read_chunks(reader, keep):
    """Reads to the end of a chunked body; returns its trailers."""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = line[:-2].split(b";")[0]
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", size):
            raise Malformed(f"chunk size {line[:40]!r}")
        size = int(size, 16)
        if size == 0:
            trailers = []
            while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
                trailers.append(line[:-2].decode("latin-1"))
            return trailers
        while size:
            piece = await reader.read(min(size, 1 << 16))
            if not piece:
                raise asyncio.IncompleteReadError(b"", size)
            size -= len(piece)
            keep(piece)
        if await reader.readexactly(2) != b"\r\n":
            raise Malformed("a chunk without its end")


class Connection:
    """One connection to citetap."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, server, tls=None, unix=None, buffer=None):
        """`buffer`: size of the kernel's receive buffer (small for clients that do not read)."""
        if unix:
            return cls(*await asyncio.open_unix_connection(unix, limit=LIMIT))
        sock = socket.socket()
        if buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, (server.host, server.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        named = {"server_hostname": HOST} if tls else {}
        return cls(*await asyncio.open_connection(sock=sock, ssl=tls, limit=buffer or LIMIT, **named))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()

    async def send(self, data, cuts=(), pause=0.001):
        """Sends the data in pieces, each in its own packet. A server that has closed is no error."""
        start = 0
        with contextlib.suppress(OSError):
            for cut in [*sorted(cuts), len(data)]:
                if cut > start:
                    self.writer.write(data[start:cut])
                    await self.writer.drain()
                    start = cut
                    if cut < len(data):
                        await asyncio.sleep(pause)

    async def response(self, method="GET", timeout=15):
        """The next final response, or None at the end of the connection."""
        return await asyncio.wait_for(self.read_response(method), timeout)

    async def read_response(self, method):
        while True:
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as error:
                if error.partial:
                    raise Malformed(f"a response that ends in its head: {error.partial[:80]!r}") from error
                return None
            except OSError:
                return None
            first, headers = head_of(head[:-4])
            match = re.fullmatch(r"HTTP/1\.[01] (\d{3})(?: .*)?", first)
            if not match:
                raise Malformed(f"status line {first[:80]!r}")
            if match[1][0] != "1" or match[1] == "101":
                break
        response = Response(int(match[1]), headers)
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            await self.read_body(response, method)
            response.complete = True
        return response

    async def read_body(self, response, method):
        pieces = []
        try:
            codings, lengths = response.all("transfer-encoding"), response.all("content-length")
            if method == "HEAD" or response.status in (101, 204, 304):
                return
            if codings:
                if codings != ["chunked"] or lengths:
                    raise Malformed(f"framing {codings} {lengths}")
                response.trailers = await read_chunks(self.reader, pieces.append)
            elif lengths:
                if len(lengths) > 1 or not lengths[0].isdigit():
                    raise Malformed(f"framing {lengths}")
                left = int(lengths[0])
                while left:
                    piece = await self.reader.read(min(left, 1 << 16))
                    if not piece:
                        raise asyncio.IncompleteReadError(b"", left)
                    left -= len(piece)
                    pieces.append(piece)
            else:
                while piece := await self.reader.read(1 << 16):
                    pieces.append(piece)
        finally:
            response.body = b"".join(pieces)

    async def rest(self, timeout=15):
        """Reads to the end of the connection, or until the timeout."""
        reply = b""
        with contextlib.suppress(OSError):
            async with asyncio.timeout(timeout):
                while piece := await self.reader.read(1 << 16):
                    reply += piece
        return reply

    async def is_closed(self, seconds):
        """True if the server closes within the time, whatever it sends before."""
        try:
            async with asyncio.timeout(seconds):
                while await self.reader.read(1 << 16):
                    pass
            return True
        # Before OSError, whose subclass it is.
        except TimeoutError:
            return False
        except OSError:
            return True

    def close(self):
        with contextlib.suppress(Exception):
            self.writer.close()

    def abort(self):
        """Closes by RST."""
        sock = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def request(method, path, headers=(), body=None, host=HOST):
    """The bytes of a well-formed request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}"] + [f"{name}: {value}" for name, value in headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


async def ask(server, method, path, headers=(), body=None, host=HOST, timeout=15, **how):
    """Sends one request on a new connection; returns the response."""
    async with await Connection.open(server, **how) as connection:
        await connection.send(request(method, path, headers, body, host))
        response = await connection.response(method, timeout)
        if response is None:
            raise Malformed(f"no response to {method} {path}")
        return response


async def raw(server, data, cuts=(), timeout=5, **how):
    """Sends bytes on a new connection; returns all bytes until the server closes."""
    async with await Connection.open(server, **how) as connection:
        await connection.send(data, cuts)
        return await connection.rest(timeout)


def status_of(reply):
    match = re.match(rb"HTTP/1\.[01] (\d{3})", reply)
    return int(match[1]) if match else 0
