"""Untrusted web pages: DNS rebinding, cross-site requests and preflights against a citetap without keys."""

from h2wire import Http2
from kit import Tenant, attack, require, route
from upstreams import Upstream, with_length
from wire import Connection, ask, raw, request, status_of

PATHS = (
    "/l0/length/1",
    "/l0/stream/1",
    "/citations",
    "/citations/m-1",
    "/stats",
    "/metrics",
    "/version",
    "/openapi.json",
    "/",
    "/console/status",
    "/render",
    "/normalize",
    "/v1/models",
    "/nowhere",
)
EVIL_ORIGIN = "https://evil.example"


def routes(port):
    return route("l0", port)


@attack("421, and nothing at the upstream")
async def host_of_a_page_that_rebinds(kit):
    """Requests every path with Host names that a page's DNS could point to loopback: HTTP/1.1, absolute target, h2."""
    hosts = [
        "evil.example",
        "evil.example:8787",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "notlocalhost",
        "2130706433",
        "127.1",
        "0x7f000001",
        "127.0.0.1@evil.example",
        "citetap",
    ]
    async with Upstream() as upstream, kit.citetap(routes(upstream.port)) as server:
        answered = []
        for host in hosts:
            for path in PATHS if host == "evil.example" else ("/l0/length/1", "/citations"):
                response = await ask(server, "GET", path, host=host)
                if response.status != 421:
                    answered.append(f"{host}{path} {response.status}")
        reply = await raw(
            server, b"GET http://evil.example/citations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        if status_of(reply) != 421:
            answered.append(f"absolute target {status_of(reply)}")
        async with await Http2.open(server) as client:
            stream = client.request("GET", "/l0/length/1", authority="evil.example")
            if (status := await client.head(stream)) != 421:
                answered.append(f"h2 {status}")
        require(not answered and not upstream.received, f"{len(upstream.received)} relayed; {answered[:6]}")
    return "all 421"


@attack("200")
async def hosts_that_are_allowed(kit):
    """Sends loopback names, addresses and `allowed_hosts`, and probes with any name."""
    toml = 'allowed_hosts = ["citetap", "*.tap.example"]\n'
    async with Upstream() as upstream, kit.citetap(toml + routes(upstream.port)) as server:
        for host in (
            "localhost",
            f"localhost:{server.port}",
            "127.0.0.1",
            f"127.0.0.1:{server.port}",
            "[::1]:80",
            "app.localhost",
            "10.0.0.7",
            "citetap",
            "CITETAP:8787",
            "a.tap.example",
        ):
            response = await ask(server, "GET", "/l0/length/1", host=host)
            require(response.status == 200, f"{host} got {response.status}")
        for path in ("/healthz", "/readyz"):
            response = await ask(server, "GET", path, host="whatever.example")
            require(response.status == 200, f"{path} got {response.status}")
        for host in ("evil.example", "tap.example.evil", "xcitetap"):
            require((await ask(server, "GET", "/l0/length/1", host=host)).status == 421, f"{host} got in")
    return "200, and 421 for others"


@attack("200 with a key for any Host, 401 without")
async def hosts_when_tenants_are_configured(kit):
    """With tenants the key authenticates: any Host is accepted, and none replaces the key."""
    tenant = Tenant("alpha")
    async with Upstream() as upstream, kit.citetap(routes(upstream.port) + tenant.toml) as server:
        got = [
            (await ask(server, "GET", "/l0/length/1", headers, host="tap.example")).status for headers in (tenant.headers, [])
        ]
        require(got == [200, 401], f"{got}")
    return "200 and 401"


@attack("403, and nothing at the upstream")
async def requests_of_other_sites(kit):
    """Sends what a page of another site can send without a preflight: simple requests with Origin or Sec-Fetch-Site."""
    pages = [
        [("Origin", EVIL_ORIGIN)],
        [("Origin", "null")],
        [("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "same-site")],
        [("Origin", EVIL_ORIGIN), ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")],
        [("Origin", "http://localhost:1")],
        [("Origin", "http://localhost.evil.example")],
        [("Origin", "file://")],
        [("Origin", "http://localhost"), ("Origin", EVIL_ORIGIN)],
        [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")],
    ]
    async with Upstream() as upstream, kit.citetap(routes(upstream.port)) as server:
        answered = []
        for page in pages:
            for method, path in [
                ("POST", "/l0/length/1"),
                ("GET", "/l0/stream/1"),
                ("DELETE", "/citations/m-1"),
                ("GET", "/citations"),
                ("POST", "/render"),
                ("POST", "/v1/chat/completions"),
                ("POST", "/normalize"),
                ("GET", "/metrics"),
                ("GET", "/nowhere"),
            ]:
                body = b"{}" if method == "POST" else None
                response = await ask(server, method, path, [*page, ("Content-Type", "text/plain")], body)
                if response.status != 403 or response.header("access-control-allow-origin"):
                    answered.append(f"{page} {method} {path} {response.status}")
        require(
            not answered and not upstream.received,
            f"{len(answered)} answered, {len(upstream.received)} relayed: {answered[:3]}",
        )
    return "all 403"


@attack("relayed")
async def requests_of_the_same_site_and_of_programs(kit):
    """Sends requests of programs (neither header), of the same origin, of the address bar, and of origins in [cors]."""
    async with Upstream() as upstream, kit.citetap(
        routes(upstream.port) + '[cors]\norigins = ["https://app.example"]\n'
    ) as server:
        own = f"localhost:{server.port}"
        for page in (
            [],
            [("Origin", f"http://{own}")],
            [("Sec-Fetch-Site", "same-origin")],
            [("Sec-Fetch-Site", "none")],
            [("Origin", "https://app.example")],
            [("Origin", "https://app.example"), ("Sec-Fetch-Site", "cross-site")],
        ):
            response = await ask(server, "POST", "/l0/length/1", page, b"{}", host=own)
            require(response.status == 200, f"{page} got {response.status}")
    return "200"


@attack("answered by citetap, 204 for origins in [cors] and else 403; none relayed")
async def preflights(kit):
    """Sends preflights to a route whose upstream would allow every origin."""

    async def allow_all(received, writer):
        writer.write(with_length("", more="Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n"))

    async with Upstream(allow_all) as upstream, kit.citetap(
        routes(upstream.port) + '[cors]\norigins = ["https://app.example"]\n'
    ) as server:
        for path in PATHS:
            for origin, expected in (("https://app.example", 204), (EVIL_ORIGIN, 403), ("null", 403)):
                headers = [
                    ("Origin", origin),
                    ("Access-Control-Request-Method", "POST"),
                    ("Access-Control-Request-Headers", "content-type"),
                ]
                response = await ask(server, "OPTIONS", path, headers)
                allowed = response.header("access-control-allow-origin")
                require(
                    response.status == expected and allowed == (origin if expected == 204 else None),
                    f"{path} for {origin}: {response.status} {allowed}",
                )
        require(not upstream.received, f"{len(upstream.received)} preflights were relayed")
    return "none relayed"


@attack("the upstream's permission is not the client's")
async def upstream_that_allows_every_origin(kit):
    """An upstream answers with Access-Control-Allow-Origin: *, which would open citetap to every page."""

    async def allow_all(received, writer):
        writer.write(with_length("x", more="Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\n"))

    async with Upstream(allow_all) as upstream, kit.citetap(routes(upstream.port)) as server:
        response = await ask(server, "GET", "/l0/length/1")
        require(response.status == 200 and not response.header("access-control-allow-origin"), f"{response.headers}")
    return "dropped"


@attack("no script but its own, no frame, no sniffing")
async def headers_of_the_console(kit):
    """Checks the headers that keep a stored text from running as a script in the console."""
    async with Upstream() as upstream, kit.citetap(routes(upstream.port)) as server:
        response = await ask(server, "GET", "/")
        policy = response.header("content-security-policy") or ""
        require(
            response.status == 200 and ("script-src" in policy or "default-src" in policy), f"{response.status} CSP {policy!r}"
        )
        require("unsafe-inline" not in policy.split("style-src")[0] and "unsafe-eval" not in policy, f"CSP {policy!r}")
        require("frame-ancestors" in policy or response.header("x-frame-options"), f"CSP {policy!r}")
        require(response.header("x-content-type-options") == "nosniff", f"{response.headers}")
        async with await Connection.open(server) as connection:
            await connection.send(request("GET", "/citations/%3Cscript%3E"))
            problem = await connection.response()
            require(
                problem.header("content-type") == "application/problem+json" and b"<script>" not in problem.body,
                f"{problem.text[:90]}",
            )
    return "set"
