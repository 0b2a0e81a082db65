"""Raw HTTP/2: writes frames as given, valid or not. Has as much of HPACK as requests and response statuses need."""

import asyncio
import contextlib
import struct

from wire import HOST, Connection

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, ACK = 1, 4, 1
# The static table's statuses (RFC 7541, appendix A).
INDEXED = {0x88: 200, 0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
# Huffman codes of the digits: 0 to 2 have five bits, the others six.
DIGITS = {"00000": "0", "00001": "1", "00010": "2"} | {f"{0b011001 + n:06b}": str(3 + n) for n in range(7)}


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream & 0x7FFFFFFF) + payload


def number(value, bits, first=0):
    """An HPACK integer."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = bytearray([first | most]), value - most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes(out) + bytes([value])


def field(name, value):
    """A literal without indexing and without Huffman coding, so that it can hold any bytes."""
    name = name.encode("latin-1") if isinstance(name, str) else name
    value = value.encode("latin-1") if isinstance(value, str) else value
    return b"\x00" + number(len(name), 7) + name + number(len(value), 7) + value


def block(fields):
    return b"".join(field(name, value) for name, value in fields)


def pseudo(method, path, scheme="http", authority=HOST):
    return [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)]


def status_in(payload):
    """Decodes `:status`, the first field of a response's header block."""
    while payload and payload[0] & 0xE0 == 0x20:  # dynamic table size update
        payload = payload[1:]
    if payload[0] in INDEXED:
        return INDEXED[payload[0]]
    length, text = payload[1] & 0x7F, payload[2:]
    if not payload[1] & 0x80:
        return int(text[:length])
    bits, digits = "".join(f"{byte:08b}" for byte in text[:length]), ""
    while len(digits) < 3:
        size = 5 if bits[:5] in DIGITS else 6
        digits, bits = digits + DIGITS[bits[:size]], bits[size:]
    return int(digits)


class Http2(Connection):
    """A connection that reads frames in a background task, so that neither side blocks the other."""

    @classmethod
    async def open(cls, server, tls=None, settings=(), window=True, **how):
        self = await super().open(server, tls=tls, **how)
        self.frames, self.next, self.goaway, self.ended = [], 1, None, False
        self.arrived = asyncio.Event()
        # SETTINGS_HEADER_TABLE_SIZE 0: statuses are decoded without a dynamic table.
        settings = [(1, 0), *settings]
        self.writer.write(PREFACE + frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in settings)))
        if window:
            self.writer.write(frame(WINDOW, 0, 0, struct.pack(">I", (1 << 30))))
        self.reading = asyncio.create_task(self.read_frames())
        return self

    async def __aexit__(self, *_):
        self.close()
        self.reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.reading

    async def read_frames(self):
        try:
            while True:
                head = await self.reader.readexactly(9)
                size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                stream = int.from_bytes(head[5:], "big")
                payload = await self.reader.readexactly(size)
                if kind == SETTINGS and not flags & ACK:
                    self.writer.write(frame(SETTINGS, ACK, 0))
                elif kind == PING and not flags & ACK:
                    self.writer.write(frame(PING, ACK, 0, payload))
                elif kind == GOAWAY:
                    self.goaway = int.from_bytes(payload[4:8], "big")
                self.frames.append((kind, flags, stream, payload))
                self.arrived.set()
        except (OSError, asyncio.IncompleteReadError):
            pass
        self.ended = True
        self.arrived.set()

    def write(self, *frames):
        with contextlib.suppress(Exception):
            self.writer.write(b"".join(frames))

    async def flush(self):
        with contextlib.suppress(OSError):
            await self.writer.drain()

    def open_stream(self, fields, end=True, more=b""):
        stream, self.next = self.next, self.next + 2
        self.write(frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block(fields) + more))
        return stream

    def request(self, method, path, headers=(), end=True, authority=HOST):
        return self.open_stream([*pseudo(method, path, authority=authority), *headers], end)

    def data(self, stream, payload, end=False):
        self.write(frame(DATA, END_STREAM if end else 0, stream, payload))

    def reset(self, stream, code=8):
        self.write(frame(RST, 0, stream, struct.pack(">I", code)))

    def of(self, stream, kind):
        return [(flags, payload) for found, flags, where, payload in self.frames if found == kind and where == stream]

    async def until(self, condition, seconds):
        """Waits until the condition holds or the connection ends; returns the condition's value."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition() and not self.ended:
                    self.arrived.clear()
                    await self.arrived.wait()
        return condition()

    async def head(self, stream, seconds=5):
        """The status of the stream's response; -1 if the stream was reset; None if nothing came."""
        await self.until(lambda: self.of(stream, HEADERS) or self.of(stream, RST), seconds)
        if found := self.of(stream, HEADERS):
            return status_in(found[-1][1] if status_in(found[0][1]) < 200 else found[0][1])
        return -1 if self.of(stream, RST) else None

    async def body(self, stream, seconds=5):
        """The stream's bytes, and whether it ended without a reset."""

        def ended():
            last = [flags for flags, _ in self.of(stream, DATA) + self.of(stream, HEADERS)]
            return any(flags & END_STREAM for flags in last) or bool(self.of(stream, RST))

        await self.until(ended, seconds)
        return b"".join(payload for _, payload in self.of(stream, DATA)), ended() and not self.of(stream, RST)
