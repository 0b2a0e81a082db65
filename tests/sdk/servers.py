"""The servers under test, each on a free loopback port, and the scripted upstream of `serve`."""

import contextlib
import http.server
import itertools
import re
import subprocess
import threading
import time

from expect import ROOT
from matrix import OPENAI_LIKE, START_TIMEOUT

# Bytes per write: small and odd, so that characters and frames are split. The pause keeps writes in separate packets.
PIECE = 97
PAUSE = 0.001

CONTROL = b"""\
data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"a"}}]}

event: citations
data: {"citations":[{"url":"https://example.com/"}]}

data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

"""


def captures():
    found = {"/control/": CONTROL}
    for name in OPENAI_LIKE:
        found[f"/openai/{name}/"] = (ROOT / "tests/fixtures/openai" / f"{name}.sse").read_bytes()
    # Last, because the first matching prefix is used.
    for name in ("doubao", "openai"):
        found[f"/{name}/"] = (ROOT / "src/replay/captures" / f"{name}.sse").read_bytes()
    return found


class Player(http.server.BaseHTTPRequestHandler):
    """Answers a POST to `/<capture>/…` with that capture, in small writes."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = next((body for path, body in self.server.captures.items() if self.path.startswith(path)), None)
        if body is None:
            self.send_error(404)
            return
        # Give each answer a new id, because answers with the same id share a record.
        own = re.search(rb'"msgid":"(\d+)"', body) or re.search(rb'"id":"([^"]{8,})"', body)
        if own:
            body = body.replace(own[1], b"%0*d" % (len(own[1]), next(self.server.ids)))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for start in range(0, len(body), PIECE):
            piece = body[start : start + PIECE]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            time.sleep(PAUSE)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


class PlayerServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    captures = captures()
    ids = itertools.count(10**7)

    def handle_error(self, *_):
        """Ignores clients that disconnect early; their cells report it."""


@contextlib.contextmanager
def player():
    server = PlayerServer(("127.0.0.1", 0), Player)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def configuration(upstream):
    toml = 'listen = "127.0.0.1:0"\nstore = "sqlite:serve.db"\n[timeouts]\ndrain = "1s"\ncommit = "5s"\n'
    routes = [("doubao", "/profile/openai/doubao", "/doubao", "doubao", "openai")]
    routes += [(name, f"/openai/{name}", f"/openai/{name}", "openai", "native") for name in OPENAI_LIKE]
    for name, prefix, path, provider, profile in routes:
        toml += f'[[routes]]\nname = "{name}"\nprefix = "{prefix}"\nupstream = "{upstream}{path}"\n'
        toml += f'provider = "{provider}"\nprofile = "{profile}"\n'
    return toml


@contextlib.contextmanager
def citetap(binary, scratch, name, arguments, announced):
    """Runs citetap until the block ends; yields its URL, which the pattern `announced` finds in its output."""
    log = scratch / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen([binary, *arguments], cwd=scratch, stdout=out, stderr=subprocess.STDOUT)
        try:
            yield address(process, log, announced)
        finally:
            process.terminate()
            try:
                process.wait(START_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def address(process, log, announced):
    end = time.monotonic() + START_TIMEOUT
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(announced, log.read_text(encoding="utf-8", errors="replace")):
            return f"http://{found[1]}"
        time.sleep(0.05)
    raise SystemExit(f"{log.stem} did not start:\n{log.read_text(encoding='utf-8', errors='replace')}")


@contextlib.contextmanager
def servers(binary, scratch):
    """Runs all servers; yields their URLs by name."""
    for old in scratch.glob("*.db*"):
        old.unlink()
    # Speed 40: an answer takes a tenth of a second. Fresh ids: otherwise a lookup would find the record of another client's
    # answer.
    demo = ["demo", "--listen", "127.0.0.1:0", "--store", "demo.db", "--speed", "40", "--fresh-ids"]
    serve = ["serve", "--config", "serve.toml", "--log-format", "json"]
    with contextlib.ExitStack() as stack:
        upstream = stack.enter_context(player())
        (scratch / "serve.toml").write_text(configuration(upstream), encoding="utf-8")
        yield {
            "player": upstream,
            "demo": stack.enter_context(citetap(binary, scratch, "demo", demo, r"demo on http://([\d.:]+)")),
            "serve": stack.enter_context(citetap(binary, scratch, "serve", serve, r'"listen":"([\d.:]+)"')),
        }
