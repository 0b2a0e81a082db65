"""Secret leaks: at trace level, no key, cookie or prompt is in the log, /metrics, an error, a record or the store."""

import asyncio
import contextlib
import secrets

from h2wire import Http2, field, pseudo
from kit import Tenant, Unexpected, attack, body_of, require, route
from upstreams import STREAM_HEAD, Upstream, chunk, finish, references, text, with_length
from wire import Connection, ask, raw

LIBRARIES = "trace,h2=trace,hyper=trace,hyper_util=trace,rustls=trace,tokio=trace,sqlx=trace,axum=trace,tower=trace"
DIALECT = '[routes.openai]\nmodels = ["filled"]\nrequest = "template"\npath = "/t"\ntemplate = \'{"k": "TEMPLATE", "query": "{{query}}"}\'\n'


class Canaries:
    """A random canary value for each field that can carry a secret."""

    def __init__(self):
        self.tenant = Tenant("alpha")
        self.known = {"key": self.tenant.key}

    def __call__(self, name):
        return self.known.setdefault(name, f"{name}z{secrets.token_hex(10)}")

    def absent(self, where, data):
        data = data if isinstance(data, bytes) else data.encode()
        found = [name for name, value in self.known.items() if value.encode() in data or value.encode().hex().encode() in data]
        require(not found, f"{found} in {where}: {around(data, self.known[found[0]].encode())}" if found else "")


def around(data, canary):
    at = data.find(canary)
    return data[max(0, at - 200) : at + 60]


async def upstream_respond(received, writer):
    ident = received.path.rsplit("/", 1)[-1].split("?")[0]
    if "/cut" in received.path:
        writer.write(STREAM_HEAD + chunk(references("m-cut")))
        return False
    if "/broken" in received.path:
        writer.write(b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n")
        return False
    if "/error" in received.path:
        writer.write(with_length('{"error": "no"}', "500 No", "application/json"))
    elif "/unread" in received.path:
        writer.write(STREAM_HEAD + chunk("data: {not json\n\n" * 3) + chunk(finish("m-unread")) + b"0\r\n\r\n")
    else:
        frames = references(ident) + text(ident, "[1]") + finish(ident)
        writer.write(STREAM_HEAD + chunk(frames) + b"0\r\n\r\n")
    return None


async def drive(server, canaries, responses):
    """Sends each canary in every field that could be logged, in requests that succeed and that fail in different ways."""
    credentials = [
        ("Cookie", f"session={canaries('cookie')}"),
        ("X-Api-Key", canaries("api")),
        ("Referer", f"https://r.example/{canaries('referer')}"),
    ]
    upstream_key = ("Authorization", f"Bearer {canaries('authorization')}")
    prompt = body_of({"model": "filled", "messages": [{"role": "user", "content": canaries("prompt")}]})
    query = f"?q={canaries('query')}"
    own = canaries.tenant.headers
    identities = [own, [("x-citetap-key", canaries("wrong"))], [("Authorization", f"Token {canaries('token')}")], []]
    for who in identities:
        headers = [*who, *credentials] + ([upstream_key] if who == own else [])
        for method, path in [
            ("POST", "/l0/m-1"),
            ("POST", "/l0/cut"),
            ("POST", "/l0/broken"),
            ("POST", "/l0/error"),
            ("POST", "/l0/unread"),
            ("POST", "/dead/x"),
            ("GET", "/l0/m-2"),
            ("POST", f"/nowhere/{canaries('path')}"),
            ("POST", "/v1/chat/completions"),
            ("POST", "/render"),
            ("POST", "/normalize"),
            ("POST", "/search"),
            ("GET", "/citations/m-1"),
            ("GET", "/citations"),
            ("DELETE", "/citations/none"),
            ("PUT", "/tasks/t/cursors/c"),
            ("GET", "/stats"),
            ("GET", "/console/status"),
            ("TRACE", "/l0/x"),
            ("POST", "/l0/../x"),
        ]:
            body = prompt if method in ("POST", "PUT") else None
            response = await ask(server, method, path + query, [*headers, ("Content-Type", "application/json")], body)
            responses.append((f"{method} {path} {response.status}", response))
        for broken in (
            canaries("prompt"),
            f'{{"text": "{canaries("prompt")}',
            f'{{"query": ["{canaries("prompt")}"], "messages": 5, "text": {{"a": "{canaries("prompt")}"}}}}',
        ):
            for path in ("/render", "/search", "/v1/chat/completions", "/tasks/t/cursors/c"):
                response = await ask(
                    server,
                    "PUT" if "cursors" in path else "POST",
                    path,
                    [*who, ("Content-Type", "application/json")],
                    broken.encode(),
                )
                responses.append((f"a broken body for {path} {response.status}", response))
    await over_h2(server, canaries)
    await badly_framed(server, canaries, responses)


async def over_h2(server, canaries):
    """Sends the canaries in h2 headers, which the h2 library logs itself: streams that complete, are reset, are malformed."""
    async with await Http2.open(server) as client:
        fields = [
            *pseudo("POST", f"/l0/m-3?q={canaries('query')}"),
            ("x-citetap-key", canaries.tenant.key),
            ("cookie", f"s={canaries('cookie')}"),
            ("authorization", f"Bearer {canaries('authorization')}"),
        ]
        streams = [client.open_stream(fields, end=False) for _ in range(3)]
        for stream in streams:
            client.data(stream, body_of({"messages": [{"content": canaries("prompt")}]}), end=stream != streams[1])
        client.reset(streams[1])
        client.open_stream(fields, more=field("Upper-Case", canaries("cookie")))
        await client.flush()
        await client.body(streams[0])
        await asyncio.sleep(0.1)


async def badly_framed(server, canaries, responses):
    """Sends requests that the parser refuses, and ones that end early."""
    head = f"POST /l0/m-4?q={canaries('query')} HTTP/1.1\r\nHost: localhost\r\nx-citetap-key: {canaries.tenant.key}\r\nCookie: {canaries('cookie')}\r\n"
    for rest in (
        f"Bad Header: {canaries('prompt')}\r\n\r\n",
        f"Transfer-Encoding: chunked\r\n\r\n{canaries('prompt')}\r\n",
        f"X: {'y' * 20_000}\r\n\r\n",
        f"Content-Length: 5000\r\n\r\n{canaries('prompt')}",
        "Content-Length: 5, 6\r\n\r\n",
        f"X-Hop: {canaries('cookie')}\r\nConnection: \xff\r\n\r\n",
    ):
        with contextlib.suppress(OSError):
            reply = await raw(server, (head + rest).encode("latin-1"), timeout=0.3)
            canaries.absent("a refusal", reply)
    async with await Connection.open(server) as connection:
        await connection.send(head.encode())
        connection.abort()
    responses.append(("/metrics", await ask(server, "GET", "/metrics")))


async def at_level(kit, toml, env, level):
    canaries = Canaries()
    for word in ("template", "rule", "searchkey"):
        toml = toml.replace(word.upper(), canaries(word))
    async with Upstream(upstream_respond) as upstream:
        routes = route(
            "l0",
            upstream.port,
            DIALECT.replace("TEMPLATE", canaries("template"))
            + f'[routes.request_headers]\nset = {{ x-rule = "{canaries("rule")}" }}\n',
        ) + route("dead", 1)
        async with kit.citetap(
            f"{toml}[search]\nkey = \"{canaries('searchkey')}\"\nbase_url = \"http://127.0.0.1:1\"\n{routes}{canaries.tenant.toml}",
            store="sqlite:c.db",
            env=env,
            drains=True,
        ) as server:
            responses = []
            await drive(server, canaries, responses)
            await asyncio.sleep(0.3)
            for name, response in responses:
                canaries.absent(f"the response to {name}", str(response.headers) + response.text)
            stored = b"".join(path.read_bytes() for path in server.folder.glob("c.db*"))
            canaries.absent("the store", stored)
            require(b"s1.example.com" in stored, "nothing was stored")
            log = server.log()
            canaries.absent(f"the log at {level}", log)
            require("TRACE" in log.upper() or level != "trace", "the log is not at trace")
            statuses = {response.status for _, response in responses}
            require({200, 400, 401, 404, 502} <= statuses, f"only {sorted(statuses)} were provoked")
            arrived = b"".join(received.everything() for received in upstream.received)
            for name in ("cookie", "api", "authorization", "prompt", "query", "rule"):
                require(canaries(name).encode() in arrived, f"{name} did not arrive at the upstream")
        canaries.absent(f"the log at {level}, after the end", server.log())
    return len(responses), len(log)


@attack("no canary in any output")
async def secrets_at_trace(kit):
    """Runs with the log at trace, set by the configuration and by RUST_LOG for every library."""
    total = 0
    for toml, env, level in (('[log]\nlevel = "trace"\n', {}, "trace"), ("", {"RUST_LOG": LIBRARIES}, "trace")):
        responses, size = await at_level(kit, toml, env, level)
        total += size
    return f"{responses} responses and {total >> 10} KiB of log without a secret"


@attack("the error names the setting and not its value")
async def secrets_in_a_broken_configuration(kit):
    """Starts citetap with invalid configurations that contain a secret."""
    canary = f"secretz{secrets.token_hex(8)}"
    for toml in (
        f'[search]\nkey = ["{canary}"]\n',
        f'[[tenants]]\nname = "a"\nkey_sha256 = "{canary}"\n',
        f'[search]\nkey = "{canary}\n',
        route("l0", 1, f'[routes.request_headers]\nset = {{ x-a = ["{canary}"] }}\n'),
        route("l0", 1).replace("http://", f"http://user:{canary}@"),
    ):
        server = kit.citetap(toml)
        try:
            async with server:
                raise AssertionError("it started")
        except Unexpected as error:
            require(
                canary not in server.log() and "did not start" in str(error),
                f"the error has the value: {around(server.log().encode(), canary.encode())}",
            )
        except AssertionError as error:
            raise Unexpected(f"{error} with {toml[:60]}") from error
    return "5 errors without a value"
