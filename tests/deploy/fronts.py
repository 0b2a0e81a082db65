"""Checks nginx and HAProxy in front of citetap: their own config check, and an answer streamed through them."""

import os
import re
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from common import run

# Minimum duration and number of reads of a streamed answer. The demo's answer has 138 frames in six seconds, here five times
# as fast. A buffered one comes at once, or in six pieces of 4 KiB.
SPREAD_S = 0.5
PIECES = 30


def check(repo):
    folder = repo.folder()
    folder.chmod(0o755)
    code, output = run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                     "-days", "2", "-subj", "/CN=localhost", "-keyout", folder / "key", "-out", folder / "crt")
    if code:
        return [f"openssl: {output}"]
    (folder / "pem").write_text((folder / "crt").read_text() + (folder / "key").read_text())

    citetap, ports = free_port(), {"nginx": free_port(), "haproxy": free_port()}
    commands = {
        "nginx": ["nginx", "-e", "stderr", "-p", folder, "-c", nginx(repo, folder, ports["nginx"], citetap)],
        "haproxy": ["haproxy", "-db", "-f", haproxy(repo, folder, ports["haproxy"], citetap)],
    }
    tried = {
        "nginx/citetap.conf": [*commands["nginx"], "-t"],
        "haproxy/citetap.cfg": [*commands["haproxy"], "-c"],
        "haproxy/compose.cfg": ["haproxy", "-c", "-f", repo.deploy / "haproxy/compose.cfg"],
    }
    complaints = []
    for name, command in tried.items():
        code, output = run(*command)
        if code or re.search(r"\[(warn|WARNING|ALERT)", output):
            complaints += [f"{name}: {line}" for line in output.splitlines() if line.strip()]
    if complaints:
        return complaints

    demo = [repo.binary, "demo", "--history", "0", "--speed", "5", "--listen", f"127.0.0.1:{citetap}",
            "--store", folder / "demo.db"]
    children = []
    try:
        children.append(start(demo, folder, citetap))
        children += [start(commands[name], folder, ports[name]) for name in ports]
        # Both in parallel, because each takes as long as the answer.
        with ThreadPoolExecutor(len(ports)) as pool:
            answers = pool.map(lambda port: [*check_stream(ask(port)), *check_paths(port, folder)], ports.values())
        for name, found in zip(ports, answers):
            complaints += [f"{name}: {complaint}" for complaint in found]
    except TimeoutError as error:
        complaints.append(str(error))
    finally:
        for child in children:
            child.send_signal(signal.SIGTERM)
        for child in children:
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
    return complaints


def nginx(repo, folder, port, citetap):
    text = (repo.deploy / "nginx/citetap.conf").read_text()
    text = text.replace("listen 443 ", f"listen 127.0.0.1:{port} ").replace("    listen [::]:443 ssl http2;\n", "")
    text = text.replace("server 127.0.0.1:8787;", f"server 127.0.0.1:{citetap};")
    for kind in ("crt", "key"):
        text = text.replace(f"/etc/nginx/tls/citetap.{kind}", f"{folder}/{kind}")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n"
                        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    head = f"daemon off; {user}\npid {folder}/pid;\nevents {{}}\n"
    path.write_text(f"{head}http {{\naccess_log off;\n{temporary}{text}}}\n")
    return path


def haproxy(repo, folder, port, citetap):
    text = (repo.deploy / "haproxy/citetap.cfg").read_text()
    text = text.replace("bind :443 ", f"bind 127.0.0.1:{port} ")
    text = text.replace("/etc/haproxy/tls/citetap.pem", f"{folder}/pem")
    text = re.sub(r"server one \S+", f"server one 127.0.0.1:{citetap}", text)
    # HAProxy refuses more connections than the file limit allows.
    text = text.replace("maxconn 20000", "maxconn 200")
    # The second server is down.
    text = re.sub(r"server two \S+", f"server two 127.0.0.1:{free_port()}", text)
    path = folder / "haproxy.cfg"
    path.write_text(text)
    return path


def start(command, folder, port):
    with (folder / f"{port}.log").open("wb") as log:
        child = subprocess.Popen([str(part) for part in command], cwd=folder, stdin=subprocess.DEVNULL, stdout=log,
                                 stderr=log, env={"PATH": os.environ["PATH"]})
    deadline = time.monotonic() + 20
    while child.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return child
        except OSError:
            time.sleep(0.02)
    child.kill()
    raise TimeoutError(f"{command[0]} does not listen: {(folder / f'{port}.log').read_text()[-500:]}")


def ask(port):
    url = f"https://127.0.0.1:{port}/doubao-en/chat/completion"
    return subprocess.Popen(["curl", "-skN", "--http2", "--max-time", "20", "-w", "\nHTTP/%{http_version} %{http_code}",
                             url, "-d", "{}"], stdout=subprocess.PIPE)


def check_stream(child):
    """Checks that the answer is complete, came over HTTP/2, and was not buffered."""
    times, body = [], b""
    while chunk := child.stdout.read1(65536):
        times.append(time.monotonic())
        body += chunk
    child.wait(5)
    if not body.endswith(b"HTTP/2 200"):
        yield f"answered {body[-40:]!r}"
    if b"event: citations" not in body or b"SSE_REPLY_END" not in body:
        yield f"the answer was cut: {len(body)} bytes"
    elif len(times) < PIECES or times[-1] - times[0] < SPREAD_S:
        yield f"{len(times)} pieces within {times[-1] - times[0]:.2f} s: it buffers"


def check_paths(port, folder):
    """Checks that operators' paths are blocked, and others are not."""
    for path, expected in (("/metrics", "404"), ("/readyz", "404"), ("/version", "404"), ("/citations", "200")):
        url = f"https://127.0.0.1:{port}{path}"
        _, output = run("curl", "-sk", "-o", folder / f"answer-{port}", "-w", "%{http_code}", url)
        if output != expected:
            yield f"{path} gives {output}, not {expected}"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
