"""Tests the OTLP export with a real OpenTelemetry collector: it accepts traces and metrics, and decodes the span correctly.

Usage: collector.py CITETAP ROTEL_AGENT SCRATCH
"""

import http.server
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time

from check import PATIENCE, Serving, Upstream, configuration, free_port, listening, post

# Patterns in the output of rotel.
EXPECTED = [
    r"Name +: chat some-model\n",
    r"Kind +: SPAN_KIND_CLIENT\n",
    r"Status code +: STATUS_CODE_UNSET\n",
    r"-> service\.name: Str\(citetap\)",
    r"-> gen_ai\.operation\.name: Str\(chat\)",
    r"-> gen_ai\.provider\.name: Str\(tencent\)",
    r"-> gen_ai\.request\.model: Str\(some-model\)",
    r"-> gen_ai\.response\.finish_reasons: Slice\(Str\(stop\)\)",
    r"-> citetap\.citations\.count: Int\([1-9]",
    r"-> http\.response\.status_code: Int\(200\)",
]


def collector(agent, port, output, *debug):
    ports = ["--otlp-http-endpoint", f"127.0.0.1:{port}", "--otlp-grpc-endpoint", f"127.0.0.1:{free_port()}"]
    command = [agent, "start", *ports, "--exporter", "blackhole", "--debug-log", *debug, "--debug-log-verbosity", "detailed"]
    return Serving(*command, stdout=output, stderr=output)


def until(what, done):
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"timeout: {what}")
        time.sleep(0.05)


def reachable(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main():
    citetap, agent, scratch = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (scratch / "citetap.toml").write_text(configuration(f"http://127.0.0.1:{server.server_port}"), encoding="utf-8")
    faults = []
    for signal, expected in [("traces", EXPECTED), ("metrics", [r"gen_ai\.client\.operation\.duration"])]:
        port, output_path = free_port(), scratch / f"{signal}.log"
        exporter = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
        env = {**os.environ, **exporter}
        with open(output_path, "w", encoding="utf-8") as output, collector(agent, port, output, signal):
            until("the collector", lambda: reachable(port))
            command = [citetap, "serve", "--config", "citetap.toml"]
            log = []
            with Serving(*command, cwd=scratch, stdout=subprocess.PIPE, text=True, env=env) as serving:
                assert post(listening(serving, log), "/tencent/full", {"model": "some-model"}) == 200
            # citetap has flushed and exited, so that missing data is lost.
            until("its output", lambda: re.search(expected[0], output_path.read_text(encoding="utf-8")))
            missing = [one for one in expected if not re.search(one, output_path.read_text(encoding="utf-8"))]
            faults += [f"{signal}: no {one}" for one in missing]
            faults += [line for line in log if "the collector" in line]
    server.shutdown()
    print(*faults, sep="\n")
    print(f"{len(EXPECTED) + 1} checked")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
