"""Runs the examples of the manual and the READMEs.

The info string of a fenced block selects the check:

    sh          run with bash and a running demo; a command that fails, or an HTTP status of 400 and more, fails the step
    sh,norun    not run: it does not end, needs the network, or installs something
    console     not run: a transcript
    json        must parse
    json,part   not parsed: has omissions (…)
    toml        must pass `citetap check`
    toml,norun  must parse as TOML: names files that do not exist here
    text, diff, html, js, yaml     not checked

The blocks of a page run in order, in one folder with links to the repository's folders, against one demo. `127.0.0.1:8787` is
replaced by the demo's address.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY, SCRATCH = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
DOCUMENTED = "127.0.0.1:8787"
LINKED = ("config", "deploy", "docs", "src", "tests", "web")
UNCHECKED = {"sh,norun", "console", "json,part", "text", "diff", "html", "js", "yaml"}
SECONDS = 60

# Wrapper of citetap that passes the demo's address to commands with a default address.
WRAPPER = """#!/bin/bash
case "$1 $*" in
    *--url*) ;;
    export\\ * | health\\ *) set -- "$@" --url "http://$DEMO" ;;
esac
exec "$DOCS_BINARY" "$@"
"""
# A `head` that reads all of its input, so that the command before it does not fail with pipefail.
HEAD = """#!/bin/bash
exec sed -n "1,${1#-}p"
"""


class Failed(Exception):
    pass


def pages():
    return [ROOT / "README.md", ROOT / "README.zh-CN.md", *sorted((ROOT / "docs" / "src").rglob("*.md"))]


def blocks(page):
    """Returns the fenced blocks as [(line, info string, text)]."""
    found, start, info, lines = [], 0, None, []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"\s*```(.*)$", line)
        if fence and info is None:
            start, info, lines = number, fence[1].strip(), []
        elif fence:
            found.append((start, info, "\n".join(lines) + "\n"))
            info = None
        elif info is not None:
            lines.append(line)
    return found


def program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def workspace(page):
    """Creates the folder in which a page's blocks run; returns it and an environment without the caller's settings."""
    folder = SCRATCH / str(page.relative_to(ROOT)).replace("/", "-")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "bin").mkdir(parents=True)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    program(folder / "bin" / "citetap", WRAPPER)
    program(folder / "bin" / "head", HEAD)
    (folder / ".curlrc").write_text(f"fail-with-body\nmax-time = {SECONDS}\n")
    kept = {name: value for name, value in os.environ.items()
            if not re.match(r"CITETAP|OTEL_|TAVILY_|PORT$|RUST_LOG$|NO_COLOR$|\w+_proxy$", name, re.I)}
    return folder, kept | {"CURL_HOME": str(folder), "HOME": str(folder), "DOCS_BINARY": str(BINARY),
                          "PATH": f"{folder}/bin:{os.environ['PATH']}", "NO_PROXY": "*"}


class Demo:
    """A `citetap demo` process, one per page."""

    def __init__(self, folder, env):
        self.log = (folder / "demo.log").open("w")
        self.process = subprocess.Popen([BINARY, "demo", "--listen", "127.0.0.1:0", "--speed", "100"], cwd=folder, env=env,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log, text=True)
        first = self.process.stdout.readline()
        found = re.search(r"http://(127\.0\.0\.1:\d+)", first)
        if not found:
            self.end()
            raise Failed(f"the demo did not start: {first}{(folder / 'demo.log').read_text()}")
        self.address = found[1]
        # Pages show the records of these two answers.
        for route in ("doubao", "doubao-en"):
            with urllib.request.urlopen(f"http://{self.address}/{route}/chat/completion", b"{}", timeout=SECONDS) as answer:
                answer.read()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()


def run(text, demo, folder, env):
    script = "set -euo pipefail\n" + text.replace(DOCUMENTED, demo.address)
    try:
        done = subprocess.run(["bash", "-c", script], cwd=folder, env=env | {"DEMO": demo.address}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"takes more than {SECONDS} s; mark it sh,norun if it does not end") from None
    if done.returncode:
        raise Failed(f"exit code {done.returncode}: {done.stdout.decode('utf-8', 'replace')[-2000:]}")


def check(text, folder, env):
    config = folder / "example.toml"
    config.write_text(text)
    # A snippet without a route gets one from the environment, and a search gets a key.
    extra = {} if "[[routes]]" in text else {"CITETAP_UPSTREAM": "https://upstream.example"}
    extra |= {"TAVILY_API_KEY": "none"} if re.search("^supplement = ", text, re.M) else {}
    done = subprocess.run([BINARY, "check", "--config", config], cwd=folder, env=env | extra, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS)
    if done.returncode:
        raise Failed(f"citetap check: {done.stdout[-2000:]}")


def verify(info, text, demo, folder, env):
    if info == "sh":
        run(text, demo, folder, env)
    elif info == "json":
        try:
            json.loads(text)
        except ValueError as error:
            raise Failed(f"not JSON ({error}); mark it json,part if it has omissions") from None
    elif info in ("toml", "toml,norun"):
        try:
            tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise Failed(f"not TOML: {error}") from None
        if info == "toml":
            check(text, folder, env)
    elif info not in UNCHECKED:
        raise Failed(f"unknown kind of block {info!r}; known: sh, json, toml, toml,norun, {', '.join(sorted(UNCHECKED))}")


def main():
    if not BINARY.is_file():
        sys.exit(f"no {BINARY}: run cargo build")
    failed = ran = 0
    for page in pages():
        demo = None
        folder, env = workspace(page)
        try:
            for line, info, text in blocks(page):
                if info == "sh" and demo is None:
                    demo = Demo(folder, env)
                try:
                    verify(info, text, demo, folder, env)
                    ran += info not in UNCHECKED
                except Failed as why:
                    failed += 1
                    print(f"{page.relative_to(ROOT)}:{line}: {why}")
        finally:
            if demo:
                demo.end()
    print(f"{ran} examples checked")
    sys.exit(failed > 0)


main()
