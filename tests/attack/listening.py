"""Other listeners: TLS with a private certificate, and a Unix socket, which must behave as plain TCP does."""

import asyncio
import ssl
import stat
import subprocess

from framing import Lane
from h2wire import Http2
from kit import Unexpected, attack, require, route
from upstreams import Upstream
from variants import all_variants
from wire import HOST, Connection, ask, raw, request, status_of

# Variants that are sent over each listener; the others exercise nothing that depends on the listener.
SOME = (
    "CL+TE of 4",
    "TE 'xchunked'",
    "CL twice, 5 and 6",
    "TE behind a bare CR",
    "chunk size 'zz'",
    "CL that hides a request",
    "chunks that hide a request",
)


def certificate(folder):
    folder.mkdir(exist_ok=True)
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-keyout",
            folder / "key.pem",
            "-out",
            folder / "cert.pem",
        ],
        check=True,
        capture_output=True,
    )
    return f'\n[tls]\ncert = "{folder / "cert.pem"}"\nkey = "{folder / "key.pem"}"\n'


def client_tls(protocols=(), **versions):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if protocols:
        context.set_alpn_protocols(list(protocols))
    for name, value in versions.items():
        setattr(context, name, value)
    return context


async def send_variants_over(server, upstream, **how):
    """Sends the variants of `SOME` over this listener; returns how many."""
    opened, count = Connection.open, 0

    async def open_over(_, **more):
        return await opened(server, **(how | more))

    Connection.open = open_over
    try:
        lane = Lane(server, upstream, "l0")
        for variant in all_variants():
            if variant.name in SOME:
                await lane.check_variant(variant)
                await lane.check_next_client(variant.name)
                count += 1
    finally:
        Connection.open = opened
    return count


@attack("closed, and others are served", needs="openssl")
async def bytes_that_are_not_tls(kit):
    """Sends plain HTTP, garbage, half a handshake and nothing to a TLS listener."""
    tls = certificate(kit.folder / "tls")
    async with Upstream() as upstream, kit.citetap(
        '[timeouts]\nrequest_headers = "1s"\n' + route("l0", upstream.port) + tls
    ) as server:
        for sent in (
            request("GET", "/l0/length/1"),
            b"\x16\x03\x01\xff\xff" + b"x" * 2000,
            b"\x16\x03\x01\x00\x05\x01",
            b"\x80\x2e\x01",
            b"",
            b"\x15\x03\x03\x00\x02\x02\x28",
        ):
            async with await Connection.open(server) as connection:
                await connection.send(sent)
                require(await connection.is_closed(4), f"{sent[:10]!r}: still open")
        response = await ask(server, "GET", "/l0/length/1", tls=client_tls())
        require(response.status == 200 and len(upstream.received) == 1, f"{response.status}, {len(upstream.received)} relayed")
    return "6 closed"


@attack("TLS 1.2 and 1.3 only; h2 only where it was negotiated", needs="openssl")
async def versions_and_protocols_of_tls(kit):
    """Offers old versions, weak ciphers, and h2 that was not negotiated."""
    tls = certificate(kit.folder / "tls")
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port) + tls) as server:
        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            context = client_tls(minimum_version=version, maximum_version=version)
            context.set_ciphers("ALL:@SECLEVEL=0")
            try:
                async with await Connection.open(server, tls=context):
                    raise Unexpected(f"{version.name} was accepted")
            except (ssl.SSLError, OSError):
                pass
        for ciphers in ("AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "NULL", "DES-CBC3-SHA", "RC4-SHA"):
            context = client_tls(maximum_version=ssl.TLSVersion.TLSv1_2)
            try:
                context.set_ciphers(ciphers + ":@SECLEVEL=0")
                async with await Connection.open(server, tls=context):
                    raise Unexpected(f"{ciphers} was accepted")
            except (ssl.SSLError, OSError):
                pass
        async with await Http2.open(server, tls=client_tls(["h2"])) as client:
            stream = client.request("GET", "/l0/length/1", authority="localhost")
            await client.flush()
            require(await client.head(stream) == 200, "h2 over TLS failed")
        async with await Http2.open(server, tls=client_tls(["http/1.1"])) as client:
            stream = client.request("GET", "/l0/length/1")
            await client.flush()
            require(await client.head(stream, 1) is None, "h2 was served where HTTP/1.1 was negotiated")
    return "old versions refused"


@attack("as over TCP", needs="openssl")
async def smuggling_over_tls(kit):
    """Sends representative variants through TLS."""
    tls = certificate(kit.folder / "tls")
    async with Upstream() as upstream, kit.citetap("workers = 1" + route("l0", upstream.port) + tls) as server:
        count = await send_variants_over(server, upstream, tls=client_tls())
    return f"{count} variants"


@attack("closed after timeouts.request_headers; others are served", needs="openssl")
async def handshakes_that_never_end(kit):
    """Begins many handshakes and never finishes them."""
    tls = certificate(kit.folder / "tls")
    async with Upstream() as upstream, kit.citetap(
        '[timeouts]\nrequest_headers = "1s"\n' + route("l0", upstream.port) + tls
    ) as server:
        clients = await asyncio.gather(*(Connection.open(server) for _ in range(kit.few(200, 2000))))
        for client in clients:
            await client.send(b"\x16\x03\x01\x02\x00\x01")
        response = await ask(server, "GET", "/l0/length/1", tls=client_tls(), timeout=3)
        require(response.status == 200, f"another client got {response.status}")
        closed = await asyncio.gather(*(client.is_closed(5) for client in clients))
        for client in clients:
            client.close()
        require(all(closed), f"{closed.count(False)} are still open")
    return f"{len(clients)} closed"


@attack("as over TCP; the socket is closed to other users")
async def unix_socket(kit):
    """Sends representative variants through a Unix socket, and checks its permissions."""
    path = kit.folder / "tap.sock"
    async with Upstream() as upstream, kit.citetap(
        "workers = 1" + route("l0", upstream.port), listen=f"unix:{path}"
    ) as server:
        mode = stat.S_IMODE(path.stat().st_mode)
        require(mode & 0o007 == 0, f"mode {mode:o}")
        count = await send_variants_over(server, upstream, unix=str(path))
        reply = await raw(
            server,
            f"GET /l0/length/1 HTTP/1.1\r\nHost: {HOST}\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n".encode(),
            unix=str(path),
        )
        require(status_of(reply) == 200 and not upstream.received[-1].all("x-forwarded-for"), f"{reply[:60]!r}")
    return f"{count} variants, mode {mode:o}"
