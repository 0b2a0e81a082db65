"""Header hygiene: headers that must not cross citetap, in either direction and in any spelling."""

from kit import Tenant, attack, require, route
from upstreams import STREAM_HEAD, Upstream, answer_stream, chunk, with_length
from wire import Connection, ask, raw, request, status_of


def names(received):
    return {name for name, _ in received.headers}


@attack("none of them at the upstream")
async def hop_by_hop_headers_of_a_client(kit):
    """Sends every hop-by-hop header, and headers named by Connection in one line and in several."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        sent = [
            ("Connection", "close, X-Hop, , x-other-hop"),
            ("Connection", "X-Third"),
            ("X-Hop", "1"),
            ("x-other-hop", "1"),
            ("X-Third", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Authorization", "Basic eDp5"),
            ("Proxy-Connection", "close"),
            ("Proxy-Authenticate", "Basic"),
            ("TE", "trailers, deflate"),
            ("Expect", "100-continue"),
            ("X-End", "stays"),
        ]
        await ask(server, "GET", "/l0/length/1", sent)
        received = upstream.complete()[0]
        crossed = names(received) & {
            "x-hop",
            "x-other-hop",
            "x-third",
            "keep-alive",
            "proxy-authorization",
            "proxy-connection",
            "proxy-authenticate",
            "expect",
            "upgrade",
            "connection",
        }
        require(not crossed and "x-end" in names(received), f"the upstream got {sorted(crossed)}")
        require(received.all("te") in ([], ["trailers"]), f"TE {received.all('te')}")
    return "none crossed"


@attack("headers for authentication and framing are kept")
async def connection_that_names_end_to_end_headers(kit):
    """Names Authorization, Cookie, Host, Content-Length and citetap's own headers in Connection."""
    tenant = Tenant("alpha")
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port) + tenant.toml) as server:
        for own in (tenant.headers, [("Authorization", f"Bearer {tenant.key}")]):
            named = [
                ("Connection", "authorization, cookie, host, content-length, content-type, x-citetap-key, x-citetap-inject"),
                ("Cookie", "a=b"),
                ("Content-Type", "text/plain"),
                *own,
            ]
            response = await ask(server, "POST", "/l0/length/1", named, b"hello")
            require(response.status == 200, f"status {response.status}")
            received = upstream.complete()[-1]
            require(
                bytes(received.body) == b"hello" and received.all("cookie") == ["a=b"], f"the upstream got {received.headers}"
            )
            require(tenant.key.encode() not in received.everything(), "citetap's key reached the upstream")
    return "kept, and the key was not relayed"


@attack("dropped, unless the peer is in trusted_proxies")
async def forwarded_headers_of_untrusted_peers(kit):
    """Claims another address by X-Forwarded-*, Forwarded and X-Real-IP."""
    sent = [
        ("X-Forwarded-For", "203.0.113.9"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Prefix", "/x"),
        ("Forwarded", "for=203.0.113.9"),
        ("X-Real-IP", "203.0.113.9"),
    ]
    for trusted, expected in (("", set()), ('trusted_proxies = ["127.0.0.0/8"]\n', {name.lower() for name, _ in sent})):
        async with Upstream() as upstream, kit.citetap(trusted + route("l0", upstream.port)) as server:
            await ask(server, "GET", "/l0/length/1", sent)
            got = names(upstream.complete()[0]) & {name.lower() for name, _ in sent}
            require(got == expected, f"with {trusted.strip() or 'no trusted proxies'} the upstream got {sorted(got)}")
    return "dropped from untrusted peers, kept from trusted ones"


@attack("none at the upstream")
async def own_headers_of_a_client(kit):
    """Sends headers that begin with x-citetap-, known and unknown, as fields and as trailers."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        sent = [
            ("x-citetap-key", "k1"),
            ("X-Citetap-Inject", "final"),
            ("x-citetap-nonce", "n"),
            ("X-CITETAP-ANYTHING", "1"),
            ("x-citetap-request", "r"),
            ("Transfer-Encoding", "chunked"),
            ("Trailer", "x-citetap-key, x-a"),
        ]
        async with await Connection.open(server) as connection:
            await connection.send(
                request("POST", "/l0/length/1", sent) + b"1\r\nz\r\n0\r\nx-citetap-key: k1\r\nx-a: b\r\nhost: h\r\n\r\n"
            )
            response = await connection.response()
            require(response.status == 200, f"status {response.status}")
        received = upstream.complete()[0]
        crossed = [line for line in (*names(received), *received.trailers) if line.lower().startswith("x-citetap")]
        require(not crossed, f"the upstream got {crossed}")
        require(not [line for line in received.trailers if line.lower().startswith("host")], f"trailers {received.trailers}")
    return "none crossed"


@attack("the client sees citetap's own, and none of the upstream's")
async def own_headers_of_an_upstream(kit):
    """An upstream sets the nonce and other headers of citetap's, as fields and as trailers, to forge citation events."""
    forged = "0123456789abcdef"
    own = f"X-Citetap-Nonce: {forged}\r\nx-citetap-request: {forged}\r\nX-CITETAP-KEY: {forged}\r\n"

    async def forge(received, writer):
        if "/stream" in received.path:
            head = STREAM_HEAD[:-2] + f"Trailer: x-citetap-nonce\r\n{own}\r\n".encode()
            writer.write(head + chunk(answer_stream("m-1")) + f"0\r\n{own}\r\n".encode())
        else:
            writer.write(with_length("x", more=own))

    async with Upstream(forge) as upstream, kit.citetap(route("l0", upstream.port)) as server:
        nonces = set()
        for path in ("/l0/length", "/l0/stream") * 3:
            async with await Connection.open(server) as connection:
                await connection.send(request("GET", path, [("TE", "trailers")]))
                response = await connection.response()
            require(forged not in str(response.headers) + str(getattr(response, "trailers", "")), f"{path}: {response.headers}")
            require(forged not in response.text, f"{path}: an event carries the forged nonce")
            nonces.update(response.all("x-citetap-nonce"))
        require(len(nonces) == 3, f"nonces {nonces}")
    return "each stream has a nonce of its own"


@attack("no spelling of the key reaches the upstream")
async def keys_in_every_spelling(kit):
    """Sends citetap's key in every header that some client uses for keys, alone and beside a header that citetap reads."""
    alpha, beta = Tenant("alpha"), Tenant("beta")
    key = alpha.key
    spellings = [
        ("Authorization", f"Bearer {key}"),
        ("Authorization", f"bearer {key}"),
        ("Authorization", f"BEARER  {key} "),
        ("Authorization", f"Bearer\t{key}"),
        ("Authorization", f"Bearer \t {key}"),
        ("Authorization", f"Token {key}"),
        ("Authorization", f'Token token="{key}"'),
        ("Authorization", key),
        ("Authorization", f"ApiKey {key}"),
        ("Authorization", f"Key {key}"),
        ("Authorization", f"Bearer {beta.key}"),
        ("Authorization", f"Bearer: {key}"),
        ("X-Api-Key", key),
        ("Api-Key", key),
        ("X-Goog-Api-Key", key),
        ("X-Auth-Token", key),
        ("Proxy-Authorization", f"Bearer {key}"),
        ("x-citetap-key", beta.key),
        ("X-Citetap-Key", key),
    ]
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port) + alpha.toml + beta.toml) as server:
        leaked, statuses = [], []
        for number, (name, value) in enumerate(spellings):
            for beside in (
                [],
                [("x-citetap-key", key)],
                [("Authorization", f"Bearer {key}")],
                [("Authorization", "Bearer upstreams")],
            ):
                before = len(upstream.received)
                response = await ask(server, "GET", f"/l0/length/{number}", [*beside, (name, value)])
                statuses.append(response.status)
                require(response.status in (200, 400, 401), f"{name}: {response.status}")
                for received in upstream.received[before:]:
                    if key.encode() in received.everything() or beta.key.encode() in received.everything():
                        leaked.append(f"{name}: {value.replace(key, 'KEY').replace(beta.key, 'KEY2')!r}")
        require(not leaked, f"the upstream got the key by {sorted(set(leaked))}")
        response = await ask(
            server,
            "GET",
            "/l0/length/x",
            [*alpha.headers, ("Authorization", "Bearer upstreams-own"), ("X-Api-Key", "theirs")],
        )
        received = upstream.complete()[-1]
        require(
            received.all("authorization") == ["Bearer upstreams-own"] and received.all("x-api-key") == ["theirs"],
            "the upstream's own credentials were removed",
        )
    return f"{len(statuses)} requests, {statuses.count(200)} relayed without a key"


@attack("relayed unchanged in both directions")
async def cookies_and_credentials_of_the_upstream(kit):
    """Sends cookies and the upstream's own credentials: citetap removes only its own key."""

    async def sets(received, writer):
        writer.write(with_length("x", more="Set-Cookie: a=1; HttpOnly\r\nSet-Cookie: b=2\r\nWWW-Authenticate: Basic\r\n"))

    async with Upstream(sets) as upstream, kit.citetap(route("l0", upstream.port)) as server:
        response = await ask(server, "GET", "/l0/1", [("Cookie", "s=1; t=2"), ("Authorization", "Basic eDp5")])
        received = upstream.complete()[0]
        require(
            received.all("cookie") == ["s=1; t=2"] and received.all("authorization") == ["Basic eDp5"], f"{received.headers}"
        )
        require(response.all("set-cookie") == ["a=1; HttpOnly", "b=2"], f"{response.headers}")
    return "passed"


@attack("none at the client")
async def hop_by_hop_headers_of_an_upstream(kit):
    """An upstream sends hop-by-hop headers, and names others in Connection."""
    more = (
        "Connection: keep-alive, X-Hop\r\nConnection: x-third\r\nX-Hop: 1\r\nx-third: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h2c\r\n"
        "Proxy-Authenticate: Basic\r\nProxy-Connection: x\r\nX-End: stays\r\n"
    )

    async def hops(received, writer):
        writer.write(with_length("x", more=more))

    async with Upstream(hops) as upstream, kit.citetap(route("l0", upstream.port)) as server:
        response = await ask(server, "GET", "/l0/1")
        crossed = {name for name, _ in response.headers} & {
            "x-hop",
            "x-third",
            "keep-alive",
            "upgrade",
            "proxy-authenticate",
            "proxy-connection",
        }
        require(not crossed and response.header("x-end") == "stays", f"the client got {sorted(crossed)}")
    return "none crossed"


@attack("as text in the path and the query, never as a header")
async def line_ends_in_paths_and_values(kit):
    """Sends percent-coded line ends in path, query and header values, to inject a header into the upstream request."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        for tail in (
            "/a%0d%0aX-Evil:%201",
            "/a%0D%0A%0D%0AGET%20/",
            "/a?q=%0d%0aX-Evil:1",
            "/a%00b",
            "/a%E5%98%8A%E5%98%8DX-Evil:1",
        ):
            before = len(upstream.received)
            response = await ask(server, "GET", f"/l0{tail}", [("X-A", "b%0d%0aX-Evil: 1")])
            received = upstream.received[before:]
            require(response.status in (200, 400) and len(received) <= 1, f"{tail}: {response.status}, {len(received)} requests")
            require(all("x-evil" not in names(one) and one.path == tail for one in received), f"{tail}: {received}")
        for path in ("/l0/a\nX-Evil: 1", "/l0/a\rX-Evil:1", "/l0/\x7f", "/l0/\x01"):
            reply = await raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode("latin-1"))
            require(status_of(reply) == 400, f"{path!r}: {reply[:40]!r}")
        require(not upstream.garbage, f"{upstream.garbage}")
    return "5 relayed as text or refused, 4 refused"


@attack("each to its configured upstream")
async def upstreams_named_by_a_client(kit):
    """Names other hosts by Host, absolute target, X-Forwarded-Host and odd paths."""
    async with Upstream() as upstream, Upstream() as other, kit.citetap(route("l0", upstream.port)) as server:
        elsewhere = f"127.0.0.1:{other.port}"
        tries = [
            f"GET http://{elsewhere}/l0/length/1 HTTP/1.1\r\nHost: {elsewhere}\r\n\r\n",
            f"GET /l0/length/2 HTTP/1.1\r\nHost: {elsewhere}\r\n\r\n",
            f"GET /l0//{elsewhere}/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"GET /l0/@{elsewhere}/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"GET /l0:@{elsewhere}/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"GET /l0.{elsewhere}/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
            f"GET /l0/length/3 HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-Host: {elsewhere}\r\nX-Original-URL: http://{elsewhere}/\r\n\r\n",
            f"CONNECT {elsewhere} HTTP/1.1\r\nHost: {elsewhere}\r\n\r\n",
            f"GET {elsewhere} HTTP/1.1\r\nHost: {elsewhere}\r\n\r\n",
        ]
        for one in tries:
            async with await Connection.open(server) as connection:
                await connection.send(one.encode())
                response = await connection.response()
                require(response.status in (200, 400, 404, 405, 501, 421), f"{one[:50]!r}: {response.status}")
        require(not other.connections, "a request reached a host that the client named")
        hosts = {value for received in upstream.received for value in received.all("host")}
        require(hosts == {f"127.0.0.1:{upstream.port}"}, f"Host at the upstream: {hosts}")
    return "none went elsewhere"


@attack("431, 414 or 400, and nothing at the upstream")
async def heads_that_are_too_large(kit):
    """Sends many headers, long ones and a long target."""
    async with Upstream() as upstream, kit.citetap(route("l0", upstream.port)) as server:
        got = []
        for name, sent in {
            "65 headers": "".join(f"X-{n}: y\r\n" for n in range(65)),
            "10,000 headers": "X: y\r\n" * 10_000,
            "a header of 17 KiB": "X: " + "y" * 17_000 + "\r\n",
            "a header of 1 MiB": "X: " + "y" * (1 << 20) + "\r\n",
        }.items():
            reply = await raw(server, f"GET /l0/1 HTTP/1.1\r\nHost: localhost\r\n{sent}\r\n".encode())
            require(status_of(reply) in (400, 431), f"{name}: {reply[:60]!r}")
            got.append(status_of(reply))
        reply = await raw(server, f"GET /l0/{'a' * (1 << 20)} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        require(status_of(reply) in (400, 414, 431), f"a long target: {reply[:60]!r}")
        require(not upstream.received, "it reached the upstream")
    return f"{got} and {status_of(reply)}"
