"""Tests metrics, rules and dashboard with citetap under traffic, scraped by a real Prometheus.

promtool lints /metrics and tests the rules. Every query of the dashboard and every recording rule must find data, so that
none can name a missing metric or label.

Usage: check.py CITETAP FOLDER_OF_PROMETHEUS_AND_PROMTOOL SCRATCH
"""

import http.client
import http.server
import json
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/rules.yml"
DASHBOARD = ROOT / "deploy/grafana/citetap.json"
FIXTURES = ROOT / "tests/fixtures"
PATIENCE = 30
SCRAPE = "200ms"


class Upstream(http.server.BaseHTTPRequestHandler):
    """A scripted upstream; the last path segment selects the response."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        kind = self.path.rsplit("/", 1)[-1]
        stream = {"cited": "doubao/seed.sse", "full": "tencent/full.sse", "bare": "tencent/no-refs.sse"}.get(kind)
        if kind == "search":
            return self.respond(200, "application/json", (FIXTURES / "tavily/general.json").read_bytes())
        if kind == "fails":
            return self.respond(500, "text/plain", b"no")
        if kind == "encoded":
            return self.respond(200, "text/event-stream", b"\x1f\x8b", {"content-encoding": "gzip"})
        body = (FIXTURES / (stream or "tencent/full.sse")).read_bytes()
        if kind == "unread":
            body = b"data: {not json}\n\n" + body
        # A cut response announces more bytes than it has.
        self.respond(200, "text/event-stream", body, {"content-length": len(body) + 9} if kind == "cut" else {})

    def respond(self, status, kind, body, headers=None):
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": len(body), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def configuration(upstream):
    """Configures routes of all kinds to the upstream, and one to a closed port."""
    routes = f"""
listen = "127.0.0.1:0"
store = "sqlite:citetap.db"
[search]
key = "none"
base_url = "{upstream}"
[[routes]]
name = "doubao"
prefix = "/doubao"
upstream = "{upstream}"
provider = "doubao"
markers = "link"
[[routes]]
name = "tencent"
prefix = "/tencent"
upstream = "{upstream}"
provider = "tencent"
markers = "link"
[[routes]]
name = "helped"
prefix = "/helped"
upstream = "{upstream}"
provider = "tencent"
supplement = "always"
[[routes]]
name = "dead"
prefix = "/dead"
upstream = "http://127.0.0.1:9"
"""
    return routes


def post(port, path, body):
    """Reads the whole response, or the bytes before it is cut; returns its status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("POST", path, body=json.dumps(body), headers={"content-type": "application/json"})
    response = connection.getresponse()
    try:
        response.read()
    except http.client.IncompleteRead:
        pass
    connection.close()
    return response.status


def traffic(port):
    question = {"messages": [{"role": "user", "content": "what is new"}]}
    for path in ["/doubao/cited", "/tencent/full", "/tencent/bare", "/tencent/cut", "/tencent/encoded", "/tencent/unread"]:
        assert post(port, path, question) == 200, path
    assert post(port, "/tencent/fails", question) == 500
    assert post(port, "/helped/bare", question) == 200
    assert post(port, "/dead/end", question) == 502
    assert post(port, "/search", {"query": "what is new"}) == 200


def get(url, accept="*/*"):
    request = urllib.request.Request(url, headers={"accept": accept})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return response.read().decode(), response.headers["content-type"]


def run(*command, stdin=None):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=RULES.parent)
    print("$", *command[1:], "\n" + done.stdout + done.stderr, sep=" ")
    return done


class Serving:
    """A child process; leaving the context stops it."""

    def __init__(self, *command, **kwargs):
        self.process = subprocess.Popen(command, **kwargs)

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(PATIENCE)


def listening(process, log=None):
    """Reads the port from the log; a thread collects later lines in `log`."""
    log = [] if log is None else log
    for line in process.stdout:
        event = json.loads(line)
        if event.get("message") == "listening":
            port = int(event["listen"].rsplit(":", 1)[1])
            threading.Thread(target=lambda: log.extend(process.stdout), daemon=True).start()
            return port
    raise SystemExit("citetap did not start")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def names_in(expression):
    """Names of metrics in an expression, without recording rules, whose names have colons."""
    bare = re.sub(r'"(?:\\.|[^"\\])*"', '""', expression)
    return set(re.findall(r"(?<![\w:$])(?:citetap|process)_[a-z_]+(?![\w:])", bare))


def dashboard_queries():
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$__range", "1h")
            yield panel["title"], re.sub(r"\$(job|instance)\b", ".*", expression)


class Prometheus:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}/api/v1/"

    def ask(self, path, **query):
        text, _ = get(self.base + path + "?" + urllib.parse.urlencode(query))
        return json.loads(text)["data"]

    def finds(self, expression):
        return len(self.ask("query", query=expression)["result"]) > 0

    def lacking(self, queries):
        return [f"{title}: {query}" for title, query in queries if not self.finds(query)]


def main():
    citetap, tools, scratch = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    promtool = str(tools / "promtool")
    faults = []
    for command in (["check", "config", "prometheus.yml"], ["test", "rules", "rules_test.yml"]):
        if run(promtool, *command).returncode:
            faults.append(f"promtool {' '.join(command)} failed")
    tested = (RULES.parent / "rules_test.yml").read_text(encoding="utf-8")
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8"))
    faults += [f"alert {alert} has no test" for alert in alerts if f"alertname: {alert}\n" not in tested]

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (scratch / "citetap.toml").write_text(configuration(f"http://127.0.0.1:{server.server_port}"), encoding="utf-8")
    with Serving(citetap, "serve", "--config", "citetap.toml", cwd=scratch, stdout=subprocess.PIPE, text=True) as serving:
        port = listening(serving)
        traffic(port)
        faults += lint(promtool, port)
        faults += scraped(tools, port, scratch)
    server.shutdown()
    print(*faults, sep="\n")
    print(f"{len(list(dashboard_queries()))} queries, {len(alerts)} alerts checked")
    sys.exit(bool(faults))


def lint(promtool, port):
    text, kind = get(f"http://127.0.0.1:{port}/metrics")
    faults = []
    done = run(promtool, "check", "metrics", stdin=text)
    if done.returncode or done.stdout or done.stderr:
        faults.append(f"promtool check metrics: {done.stdout}{done.stderr}")
    if kind != "text/plain; version=0.0.4; charset=utf-8":
        faults.append(f"/metrics is {kind}")
    there = {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and not line.startswith("#")}
    named = names_in(RULES.read_text(encoding="utf-8").partition("groups:")[2])
    for _, query in dashboard_queries():
        named |= names_in(query)
    # Descriptions of alerts name metric families.
    families = {re.sub(r"_(?:bucket|sum|count)$", "", name) for name in there}
    faults += [f"{name} is in the rules or the dashboard, not in /metrics" for name in sorted(named - there - families)]
    faults += [f"{name} is in /metrics, not in the dashboard" for name in sorted(unshown(families))]
    return faults


def unshown(families):
    """Metrics that the dashboard does not show, except unimportant ones."""
    shown = {re.sub(r"_(?:bucket|sum|count)$", "", name) for _, query in dashboard_queries() for name in names_in(query)}
    unimportant = {
        "citetap_search_results_dropped_total",
        "citetap_supplements_skipped_total",
        "citetap_tasks",
        "process_start_time_seconds",
        "process_threads",
        "process_virtual_memory_bytes",
    }
    return families - shown - unimportant


def scraped(tools, port, scratch):
    """Runs a Prometheus with our rules that scrapes citetap; returns the queries and rules that find nothing."""
    config = (RULES.parent / "prometheus.yml").read_text(encoding="utf-8").replace("citetap:8787", f"127.0.0.1:{port}")
    config = re.sub(r"(scrape|evaluation)_interval: \w+", rf"\1_interval: {SCRAPE}", config)
    (scratch / "prometheus.yml").write_text(config, encoding="utf-8")
    (scratch / "rules.yml").write_text(RULES.read_text(encoding="utf-8"), encoding="utf-8")
    own = free_port()
    command = [
        str(tools / "prometheus"),
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=tsdb",
        f"--web.listen-address=127.0.0.1:{own}",
        "--log.level=warn",
    ]
    with Serving(*command, cwd=scratch):
        prometheus = Prometheus(own)
        queries = list(dashboard_queries())
        recorded = re.findall(r"- record: (\S+)", RULES.read_text(encoding="utf-8"))
        queries += [("recorded", name) for name in recorded]
        until = time.monotonic() + PATIENCE
        lacking = ["Prometheus did not answer"]
        while lacking and time.monotonic() < until:
            time.sleep(0.5)
            try:
                lacking = prometheus.lacking(queries)
            except OSError:
                continue
        faults = [f"finds nothing: {what}" for what in lacking]
        groups = prometheus.ask("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        faults += [f"rule {rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] == "err"]
        targets = prometheus.ask("targets")["activeTargets"]
        faults += [f"scrape: {target['lastError']}" for target in targets if target["health"] != "up"]
        return faults


if __name__ == "__main__":
    main()
