"""Secrets in logs: with every library at trace, no key, cookie or prompt is in the log, /metrics, an error, a record or the store."""

import asyncio
import contextlib
import secrets

from h2wire import Http2, field, pseudo
from kit import Tenant, Unexpected, attack, body_of, require, route
from upstreams import STREAM_HEAD, Upstream, chunk, finish, references, text, with_length
from wire import Connection, ask, raw

LIBRARIES = "trace,h2=trace,hyper=trace,hyper_util=trace,rustls=trace,tokio=trace,sqlx=trace,axum=trace,tower=trace"
DIALECT = '[routes.openai]\nmodels = ["filled"]\nrequest = "template"\npath = "/t"\ntemplate = \'{"k": "TEMPLATE", "query": "{{query}}"}\'\n'


class Words:
    """A word for each place in which a secret travels."""

    def __init__(self):
        self.tenant = Tenant("alpha")
        self.known = {"key": self.tenant.key}

    def __call__(self, name):
        return self.known.setdefault(name, f"{name}z{secrets.token_hex(10)}")

    def absent(self, where, data):
        data = data if isinstance(data, bytes) else data.encode()
        found = [name for name, word in self.known.items() if word.encode() in data or word.encode().hex().encode() in data]
        require(not found, f"{found} in {where}: {around(data, self.known[found[0]].encode())}" if found else "")


def around(data, word):
    at = data.find(word)
    return data[max(0, at - 200) : at + 60]


async def upstream_answers(received, writer):
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
        said = references(ident) + text(ident, "[1]") + finish(ident)
        writer.write(STREAM_HEAD + chunk(said) + b"0\r\n\r\n")
    return None


async def drive(server, words, answers):
    """Sends each secret in every place where it could be logged, in requests that succeed and that fail in different ways."""
    credentials = [
        ("Cookie", f"session={words('cookie')}"),
        ("X-Api-Key", words("api")),
        ("Referer", f"https://r.example/{words('referer')}"),
    ]
    theirs = ("Authorization", f"Bearer {words('authorization')}")
    prompt = body_of({"model": "filled", "messages": [{"role": "user", "content": words("prompt")}]})
    query = f"?q={words('query')}"
    own = words.tenant.headers
    ways = [own, [("x-citetap-key", words("wrong"))], [("Authorization", f"Token {words('token')}")], []]
    for who in ways:
        headers = [*who, *credentials] + ([theirs] if who == own else [])
        for method, path in [
            ("POST", "/l0/m-1"),
            ("POST", "/l0/cut"),
            ("POST", "/l0/broken"),
            ("POST", "/l0/error"),
            ("POST", "/l0/unread"),
            ("POST", "/dead/x"),
            ("GET", "/l0/m-2"),
            ("POST", f"/nowhere/{words('path')}"),
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
            answer = await ask(server, method, path + query, [*headers, ("Content-Type", "application/json")], body)
            answers.append((f"{method} {path} {answer.status}", answer))
        for broken in (
            words("prompt"),
            f'{{"text": "{words("prompt")}',
            f'{{"query": ["{words("prompt")}"], "messages": 5, "text": {{"a": "{words("prompt")}"}}}}',
        ):
            for path in ("/render", "/search", "/v1/chat/completions", "/tasks/t/cursors/c"):
                answer = await ask(
                    server,
                    "PUT" if "cursors" in path else "POST",
                    path,
                    [*who, ("Content-Type", "application/json")],
                    broken.encode(),
                )
                answers.append((f"a broken body for {path} {answer.status}", answer))
    await over_h2(server, words)
    await badly_framed(server, words, answers)


async def over_h2(server, words):
    """The same secrets in h2 headers, which its library logs on its own, with answers read, reset, and malformed."""
    async with await Http2.open(server) as client:
        fields = [
            *pseudo("POST", f"/l0/m-3?q={words('query')}"),
            ("x-citetap-key", words.tenant.key),
            ("cookie", f"s={words('cookie')}"),
            ("authorization", f"Bearer {words('authorization')}"),
        ]
        streams = [client.open_stream(fields, end=False) for _ in range(3)]
        for stream in streams:
            client.data(stream, body_of({"messages": [{"content": words("prompt")}]}), end=stream != streams[1])
        client.reset(streams[1])
        client.open_stream(fields, more=field("Upper-Case", words("cookie")))
        await client.flush()
        await client.body(streams[0])
        await asyncio.sleep(0.1)


async def badly_framed(server, words, answers):
    """Requests that are refused by the parser, and ones that end early."""
    head = f"POST /l0/m-4?q={words('query')} HTTP/1.1\r\nHost: localhost\r\nx-citetap-key: {words.tenant.key}\r\nCookie: {words('cookie')}\r\n"
    for rest in (
        f"Bad Header: {words('prompt')}\r\n\r\n",
        f"Transfer-Encoding: chunked\r\n\r\n{words('prompt')}\r\n",
        f"X: {'y' * 20_000}\r\n\r\n",
        f"Content-Length: 5000\r\n\r\n{words('prompt')}",
        "Content-Length: 5, 6\r\n\r\n",
        f"X-Hop: {words('cookie')}\r\nConnection: \xff\r\n\r\n",
    ):
        with contextlib.suppress(OSError):
            said = await raw(server, (head + rest).encode("latin-1"), timeout=0.3)
            words.absent("a refusal", said)
    async with await Connection.open(server) as connection:
        await connection.send(head.encode())
        connection.abort()
    answers.append(("/metrics", await ask(server, "GET", "/metrics")))


async def at_level(kit, toml, env, level):
    words = Words()
    toml = toml.replace("TEMPLATE", words("template")).replace("RULE", words("rule")).replace("SEARCHKEY", words("searchkey"))
    async with Upstream(upstream_answers) as upstream:
        routes = route(
            "l0",
            upstream.port,
            DIALECT.replace("TEMPLATE", words("template"))
            + f'[routes.request_headers]\nset = {{ x-rule = "{words("rule")}" }}\n',
        ) + route("dead", 1)
        async with kit.citetap(
            f"{toml}[search]\nkey = \"{words('searchkey')}\"\nbase_url = \"http://127.0.0.1:1\"\n{routes}{words.tenant.toml}",
            store="sqlite:c.db",
            env=env,
            drains=True,
        ) as server:
            answers = []
            await drive(server, words, answers)
            await asyncio.sleep(0.3)
            for name, answer in answers:
                words.absent(f"the answer to {name}", str(answer.headers) + answer.text)
            stored = b"".join(path.read_bytes() for path in server.folder.glob("c.db*"))
            words.absent("the store", stored)
            require(b"s1.example.com" in stored, "nothing was stored")
            log = server.log()
            words.absent(f"the log at {level}", log)
            require("TRACE" in log.upper() or level != "trace", "the log is not at trace")
            statuses = {answer.status for _, answer in answers}
            require({200, 400, 401, 404, 502} <= statuses, f"only {sorted(statuses)} were provoked")
            arrived = b"".join(received.everything() for received in upstream.received)
            for name in ("cookie", "api", "authorization", "prompt", "query", "rule"):
                require(words(name).encode() in arrived, f"{name} did not arrive at the upstream")
        words.absent(f"the log at {level}, after the end", server.log())
    return len(answers), len(log)


@attack("none of them")
async def secrets_at_trace(kit):
    """Runs with the log at trace, as text and as JSON, by the setting and by RUST_LOG with every library in it."""
    total = 0
    for toml, env, level in (('[log]\nlevel = "trace"\n', {}, "trace"), ("", {"RUST_LOG": LIBRARIES}, "trace")):
        answers, size = await at_level(kit, toml, env, level)
        total += size
    return f"{answers} answers and {total >> 10} KiB of log without a secret"


@attack("the error names the setting and not its value")
async def secrets_in_a_broken_configuration(kit):
    """Starts with configurations that are wrong around a secret."""
    word = f"secretz{secrets.token_hex(8)}"
    for toml in (
        f'[search]\nkey = ["{word}"]\n',
        f'[[tenants]]\nname = "a"\nkey_sha256 = "{word}"\n',
        f'[search]\nkey = "{word}\n',
        route("l0", 1, f'[routes.request_headers]\nset = {{ x-a = ["{word}"] }}\n'),
        route("l0", 1).replace("http://", f"http://user:{word}@"),
    ):
        server = kit.citetap(toml)
        try:
            async with server:
                raise AssertionError("it started")
        except Unexpected as error:
            require(
                word not in server.log() and "did not start" in str(error),
                f"the error tells the value: {around(server.log().encode(), word.encode())}",
            )
        except AssertionError as error:
            raise Unexpected(f"{error} with {toml[:60]}") from error
    return "5 errors without a value"
