"""Requests that two parsers could frame differently, each with the readings that RFC 9112 allows.

`@P` is the path of the request, `@S` a complete second request, hidden where some parser would execute it. A reading is the
list of requests that a recipient may execute, in order. A prefix of it is allowed too, because the server may refuse and close.
"""

from dataclasses import dataclass

PATH = "/l0/length/00000000"
HIDDEN = "GET /l0/hidden/00000000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
Z = "1\r\nz\r\n0\r\n\r\n"
P, S = "first", "hidden"
REFUSED = ((),)
# The framing is unambiguous and the request is refused for another reason: what follows is the client's next request.
REFUSED_ALONE = ((), ((S, ""),))


def only(body):
    return (((P, body),),)


def then_hidden(body):
    return (((P, body), (S, "")),)


@dataclass(frozen=True)
class Variant:
    name: str
    raw: str
    readings: tuple

    def bytes(self, path, hidden):
        return self.raw.replace("@P", path).replace("@S", hidden).encode("latin-1")


def variant(name, raw, readings):
    return Variant(name, raw, readings)


def post(headers, body, version="HTTP/1.1"):
    lines = "".join(line + "\r\n" for line in headers)
    return f"POST @P {version}\r\nHost: localhost\r\n{lines}\r\n{body}"


def length(size):
    return f"Content-Length: {size}"


TE = "Transfer-Encoding: chunked"
WITH_HIDDEN = len(HIDDEN)


def both_lengths():
    """Content-Length beside Transfer-Encoding, in either order: Transfer-Encoding wins, and the connection is closed."""
    for size in (0, 4, 5, 11 + WITH_HIDDEN, 10**6):
        for names in ((length(size), TE), (TE, length(size))):
            order = "CL+TE" if names[0] != TE else "TE+CL"
            yield variant(f"{order} of {size}", post(names, Z + "@S"), only("z"))
    yield variant(
        "TE+CL, and chunks that hide a request", post((TE, length(4)), f"{WITH_HIDDEN:x}\r\n@S\r\n0\r\n\r\n"), only("@S")
    )
    yield variant("TE in HTTP/1.0", post((TE,), Z + "@S", "HTTP/1.0"), only("z"))
    yield variant("CL+TE in HTTP/1.0", post((length(4), TE), Z + "@S", "HTTP/1.0"), only("z"))


CODINGS = {
    # Valid spellings of "chunked".
    "chunked": True,
    "Chunked": True,
    "CHUNKED": True,
    "\tchunked": True,
    "  chunked \t": True,
    ",chunked": True,
    "chunked,": True,
    "chunked, identity": False,
    "identity, chunked": False,
    "identity": False,
    "xchunked": False,
    "chunkedx": False,
    "chunked, chunked": False,
    "chunked;q=1": False,
    '"chunked"': False,
    "'chunked'": False,
    "chunk": False,
    "gzip, chunked": False,
    "chunked, gzip": False,
    "gzip": False,
    "x, chunked": False,
    "": False,
    "chunked\x0b": False,
    "\x0cchunked": False,
    "\xa0chunked": False,
    "chunked\x00": False,
    "chun\u00e7ked": False,
    "chunked chunked": False,
    "1": False,
}


def codings():
    for coding, valid in CODINGS.items():
        name = f"TE {coding!r}"
        raw = post((f"Transfer-Encoding: {coding}",), Z + "@S")
        yield variant(name, raw, then_hidden("z") if valid else REFUSED)
        raw = post((f"Transfer-Encoding: {coding}", length(11)), Z + "@S")
        # An empty coding leaves the length alone.
        readings = only("z") if valid else REFUSED if coding else REFUSED + then_hidden(Z)
        yield variant(f"{name} beside a length", raw, readings)
    for first, second in (
        (TE, TE),
        (TE, "Transfer-Encoding: identity"),
        ("Transfer-Encoding: identity", TE),
        (TE, "Transfer-Encoding: x"),
        ("Transfer-Encoding: x", TE),
        (TE, "transfer-encoding: gzip"),
    ):
        yield variant(f"two lines {first[19:]!r}, {second[19:]!r}", post((first, second), Z + "@S"), REFUSED)


def hidden_codings():
    """Field names that resemble Transfer-Encoding: citetap and the upstream must read them alike."""
    for name in (
        "Transfer-Encoding ",
        "Transfer-Encoding\t",
        "Transfer-Encoding\x0b",
        "Transfer-Encoding\x00",
        " Transfer-Encoding",
        "\tTransfer-Encoding",
        "Transfer Encoding",
        "Transfer-Encoding\xa0",
        "\x0bTransfer-Encoding",
        ":Transfer-Encoding",
    ):
        raw = post((f"{name}: chunked", length(11)), Z + "@S")
        yield variant(f"field name {name!r}", raw, REFUSED)
    for name in ("Transfer_Encoding", "X-Transfer-Encoding", "TransferEncoding", "Content-Encoding"):
        raw = post((f"{name}: chunked", length(11)), Z + "@S")
        yield variant(f"field name {name!r}", raw, then_hidden(Z))
    yield variant("field name tRANSFER-eNCODING", post(("tRANSFER-eNCODING: chunked",), Z + "@S"), then_hidden("z"))
    folded = then_hidden(Z)
    yield variant(
        "TE in a folded line", post(("X-A: b", " Transfer-Encoding: chunked", length(11)), Z + "@S"), REFUSED + folded
    )
    yield variant("TE with a folded value", post(("Transfer-Encoding:", " chunked"), Z + "@S"), REFUSED + then_hidden("z"))
    yield variant("TE behind a bare CR", post(("X-A: b\rTransfer-Encoding: chunked", length(11)), Z + "@S"), REFUSED)
    yield variant(
        "TE behind a bare LF", post(("X-A: b\nTransfer-Encoding: chunked", length(11)), Z + "@S"), REFUSED + only("z")
    )
    yield variant("TE behind LF CR", post(("X-A: b\n\rTransfer-Encoding: chunked", length(11)), Z + "@S"), REFUSED)


LENGTHS = {
    "5": True,
    "05": True,
    "  5": True,
    "5 \t": True,
    "00000000000000000005": True,
    "+5": False,
    "-5": False,
    "-0": False,
    "0x5": False,
    "5 5": False,
    "5;": False,
    "5.0": False,
    "5e0": False,
    "": False,
    "five": False,
    "5,": False,
    ",5": False,
    "5, 6": False,
    "6, 5": False,
    "5\x005": False,
    "\x0b5": False,
    "5\xa0": False,
    "\xb2": False,
    "1_0": False,
    "18446744073709551616": False,
    "18446744073709551621": False,
    "9" * 40: False,
    "4294967301": False,
    "-18446744073709551611": False,
    '"5"': False,
    "5 HTTP/1.1": False,
}


def lengths():
    for value, valid in LENGTHS.items():
        raw = post((f"Content-Length: {value}",), "hello@S")
        yield variant(f"CL {value[:24]!r}", raw, then_hidden("hello") if valid else REFUSED)
    # RFC 9110 8.6: equal values may be merged.
    yield variant("CL '5, 5'", post(("Content-Length: 5, 5",), "hello@S"), REFUSED + then_hidden("hello"))
    yield variant("CL twice, equal", post((length(5), length(5)), "hello@S"), REFUSED + then_hidden("hello"))
    yield variant("CL twice, 5 and 05", post((length(5), length("05")), "hello@S"), REFUSED + then_hidden("hello"))
    for one, other in ((5, 6), (0, 5), (5, 0), (5, 5 + WITH_HIDDEN), (5 + WITH_HIDDEN, 5), (5, "x"), (5, "")):
        yield variant(f"CL twice, {one} and {other!r}", post((length(one), length(other)), "hello@S"), REFUSED)
    yield variant("CL with a space before the colon", post(("Content-Length : 5",), "hello@S"), REFUSED)
    yield variant("CL with a folded value", post(("Content-Length:", " 5"), "hello@S"), REFUSED + then_hidden("hello"))
    yield variant("CL folded onto another", post(("Content-Length: 5", " 5"), "hello@S"), REFUSED)
    yield variant("CL cut by NUL", post(("Content-Length: 5\0",), "hello@S"), REFUSED)
    yield variant("CL in a line with no colon", post(("Content-Length 5",), "hello@S"), REFUSED)
    yield variant("CL that hides a request", post((length(WITH_HIDDEN),), "@S"), only("@S"))
    yield variant("CL and less than that", post((length(500),), "hello@S"), REFUSED)
    yield variant("CL over the limit", post((length(2 << 20),), "@S" + "y" * 200), REFUSED)


SIZES = {
    "1": True,
    "01": True,
    "0000000000000001": True,
    "1;a": True,
    "1;a=b": True,
    '1;a="b;c"': True,
    "1;;;;": True,
    "00000000000000001": True,
    "1 ;a": True,
    "1 ": True,
    "1\t": True,
    '1;"': True,
    "": False,
    "zz": False,
    "-1": False,
    "+1": False,
    "0x1": False,
    "1x": False,
    "1 1": False,
    " 1": False,
    "1,1": False,
    "\x001": False,
    "ffffffffffffffff": False,
    "10000000000000001": False,
    "ffffffffffffffffff": False,
    "1_": False,
    "g": False,
    "1\x0b": False,
    "1\r": False,
    "1;a\rb": False,
    "1;\n": False,
    "1\n": False,
    "1;" + "e" * 20000: False,
}


def chunks():
    for size, valid in SIZES.items():
        raw = post((TE,), f"{size}\r\nz\r\n0\r\n\r\n@S")
        # A refusal of valid syntax is allowed: a hop may be stricter than the grammar.
        yield variant(f"chunk size {size[:20]!r}", raw, then_hidden("z") if valid else REFUSED)
    for name, body in {
        "LF after the size": "1\nz\r\n0\r\n\r\n",
        "LF after the data": "1\r\nz\n0\r\n\r\n",
        "CR after the data": "1\r\nz\r0\r\n\r\n",
        "no end of the data": "1\r\nz0\r\n\r\n",
        "data longer than the size": "1\r\nzX\r\n0\r\n\r\n",
        "data shorter than the size": "3\r\nz\r\n0\r\n\r\n",
        "a size of a hidden request": f"{WITH_HIDDEN + 1:x}\r\nz\r\n0\r\n\r\n@S",
        "a blank line for a size": "\r\n1\r\nz\r\n0\r\n\r\n",
        "last chunk with LF": "1\r\nz\r\n0\n\r\n",
        "two CR": "1\r\r\nz\r\n0\r\n\r\n",
        "end without its CRLF": "1\r\nz\r\n0\r\n",
    }.items():
        yield variant(f"chunks: {name}", post((TE,), body + "@S"), REFUSED)
    for name, trailers in {
        "a field": "X-A: b",
        "a length": "Content-Length: 50",
        "a coding": TE,
        "a host": "Host: other",
        "two": "A: b\r\nC: d",
        "a key": "x-citetap-key: k",
    }.items():
        yield variant(f"trailers: {name}", post((TE,), f"1\r\nz\r\n0\r\n{trailers}\r\n\r\n@S"), then_hidden("z"))
    for name, trailers in {
        "no colon": "GET / HTTP/1.1",
        "NUL": "A: \0",
        "a space in the name": "A B: c",
        "endless": "A: " + "b" * 70000,
    }.items():
        yield variant(f"trailers: {name}", post((TE,), f"1\r\nz\r\n0\r\n{trailers}\r\n\r\n@S"), REFUSED)
    yield variant("trailers: folded", post((TE,), "1\r\nz\r\n0\r\nA: b\r\n c: d\r\n\r\n@S"), REFUSED + then_hidden("z"))
    yield variant("chunks that hide a request", post((TE,), f"{WITH_HIDDEN:x}\r\n@S\r\n0\r\n\r\n"), only("@S"))
    yield variant("chunks over the limit", post((TE,), f"{1 << 20:x}\r\n{'y' * (1 << 20)}\r\n1\r\ny\r\n0\r\n\r\n"), REFUSED)


def heads():
    get = "GET @P HTTP/1.1\r\nHost: localhost\r\n"
    end = "\r\n@S"
    for name, raw in {
        "NUL in a value": get + "A: b\0c\r\n" + end,
        "NUL in a name": get + "A\0: b\r\n" + end,
        "CR in a value": get + "A: b\rc\r\n" + end,
        "a space before the colon": get + "A : b\r\n" + end,
        "no colon": get + "AB\r\n" + end,
        "an empty name": get + ": b\r\n" + end,
        "a space in a name": get + "A B: c\r\n" + end,
        "a header before the line": "A: b\r\n" + get + end,
        "a folded first header": "GET @P HTTP/1.1\r\n Host: localhost\r\n" + end,
        "version 2.0": get.replace("1.1", "2.0") + end,
        "version 1.2": get.replace("1.1", "1.2") + end,
        "lower-case version": get.replace("HTTP/", "http/") + end,
        "no version": "GET @P\r\n" + end,
        "no target": "GET HTTP/1.1\r\nHost: localhost\r\n" + end,
        "a space in the target": get.replace("@P", "@P x") + end,
        "NUL in the target": get.replace("@P", "@P\0") + end,
        "no method": get.replace("GET ", " ") + end,
        "a method with (": get.replace("GET", "GE(") + end,
        "CR in the target": get.replace("@P", "@P\rx") + end,
        "LF in the target": get.replace("@P", "@P\nx") + end,
        "tabs between the words": get.replace(" @P ", "\t@P\t") + end,
        "CR CR LF": get.replace("\r\n", "\r\r\n") + end,
    }.items():
        yield variant(f"head: {name}", raw, REFUSED)
    for name, raw in {
        "two Hosts": get + "Host: other\r\n" + end,
        "two equal Hosts": get + "Host: localhost\r\n" + end,
        "no Host": "GET @P HTTP/1.1\r\nA: b\r\n" + end,
        "CONNECT": get.replace("GET", "CONNECT") + end,
        "TRACE": get.replace("GET", "TRACE") + end,
        "an upgrade": get + "Connection: upgrade\r\nUpgrade: websocket\r\n" + end,
        "dot segments": get.replace("@P", "@P/../../l0/hidden/x") + end,
        "coded dot segments": get.replace("@P", "@P/%2e%2e/x") + end,
        "coded slashes": get.replace("@P", "@P/..%2fx") + end,
        "backslashes": get.replace("@P", "@P/..\\x") + end,
    }.items():
        yield variant(f"head: {name}", raw, REFUSED_ALONE)
    for name, raw in {
        "a Host with a path": get.replace("localhost", "localhost/@P") + end,
        "a Host of two words": get.replace("localhost", "localhost x") + end,
        "an empty line before": "\r\n" + get + end,
        "two spaces in the line": get.replace("GET ", "GET  ") + end,
        "space after the version": get.replace("1.1\r", "1.1 \r") + end,
        "LF line ends": (get + "\r\n").replace("\r\n", "\n") + "@S",
        "LF after a value": get + "A: b\n" + end,
        "LF LF at the end": get[:-2] + "\n\n@S",
        "a folded value": get + "A: b\r\n c\r\n" + end,
        "bytes over 127 in a value": get + "A: \xff\xfe\r\n" + end,
        "an empty value": get + "A:\r\n" + end,
        "an h2c offer": get
        + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
        + end,
        "100-continue without a body": get + "Expect: 100-continue\r\n" + end,
        "another expectation": get + "Expect: 200-ok\r\n" + end,
        "Connection names the length": get
        + "Connection: content-length, transfer-encoding, host\r\nContent-Length: 0\r\n"
        + end,
        "a fragment": get.replace("@P", "@P#x") + end,
        "version 1.1 in full": get + end,
    }.items():
        yield variant(f"head: {name}", raw, REFUSED_ALONE + then_hidden(""))
    yield variant("head: close, and more", get + "Connection: close\r\n" + end, only(""))
    yield variant("head: HTTP/1.0, and more", "GET @P HTTP/1.0\r\nHost: localhost\r\n" + end, then_hidden(""))
    yield variant("head: 70 KiB", get + "A: " + "b" * 70000 + "\r\n" + end, REFUSED)
    yield variant("head: 500 fields", get + "".join(f"A{n}: b\r\n" for n in range(500)) + end, REFUSED)
    yield variant("chunked GET", get + f"{TE}\r\n\r\n{Z}@S", then_hidden("z"))
    yield variant("GET with a length", get + f"{length(5)}\r\n\r\nhello@S", then_hidden("hello"))
    yield variant("chunked HEAD", get.replace("GET", "HEAD") + f"{TE}\r\n\r\n{Z}@S", then_hidden("z"))
    yield variant(
        "chunked DELETE that hides",
        get.replace("GET", "DELETE") + f"{TE}\r\n\r\n{WITH_HIDDEN:x}\r\n@S\r\n0\r\n\r\n",
        only("@S"),
    )
    yield variant("100-continue with a body", post((length(5), "Expect: 100-continue"), "hello@S"), then_hidden("hello"))
    yield variant(
        "Connection names the framing", post((length(5), "Connection: content-length"), "hello@S"), then_hidden("hello")
    )
    yield variant(
        "Connection names the chunks", post((TE, "Connection: transfer-encoding, keep-alive"), Z + "@S"), then_hidden("z")
    )


def all_variants():
    return [made for group in (both_lengths, codings, hidden_codings, lengths, chunks, heads) for made in group()]
