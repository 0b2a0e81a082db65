"""Checks that the manual documents every key with its default, every endpoint, command, metric and problem type of the binary,
and that tests/README.md lists exactly the numbered inputs that have a test."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = pathlib.Path(sys.argv[1]).resolve()
PAGES = ROOT / "docs" / "src"
# Tables whose keys the manual does not list one by one.
TABLES = ("scores.", "scores.authority", "scores.weights", "corroboration", "intents", "search", "search.event_types")
# Prefix of the keys of a route in the output of `citetap check`.
ROUTE = "routes.default."


def page(name):
    return (PAGES / name).read_text(encoding="utf-8")


def ask(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([BINARY, *arguments], cwd=folder, env={"CITETAP_UPSTREAM": "https://upstream.example", "PATH": "/usr/bin:/bin"},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=60, check=True)
    return done.stdout


def plain(text):
    """Removes blanks, digit separators and backticks."""
    return re.sub(r"[\s,`]", "", text)


def keys():
    """Checks that each key is named, and that a row with it has the default."""
    for chinese, texts in ((False, [page("configuration.md"), page("limits.md")]), (True, [page("zh/configuration.md"), page("limits.md")])):
        rows = [line for text in texts for line in text.splitlines() if line.startswith("|")]
        for entry in json.loads(ask("check", "--output", "json")):
            key, value = entry["key"].removeprefix(ROUTE), entry["value"]
            if key.startswith(TABLES):
                continue
            named = [row for row in rows if f"`{key}`" in row]
            where = "zh/configuration.md" if chinese else "configuration.md"
            if not named:
                yield f"{where} and limits.md do not name the key {key}"
            elif value and value != "[]" and entry["origin"] == "default" and not any(plain(value) in plain(row) for row in named):
                yield f"{where} and limits.md have another default for {key}, which is {value}"


def endpoints():
    text = page("http-api.md")
    for path in json.loads(ask("openapi"))["paths"]:
        if f"{path}`" not in text and f"{path}?" not in text:
            yield f"http-api.md does not name {path}"


def commands():
    text = page("operations.md")
    listed = ask("--help").split("Commands:", 1)[1].split("Options:", 1)[0]
    for command in re.findall(r"^  (\w+)  ", listed, re.M):
        if command != "help" and f"`{command}`" not in text:
            yield f"operations.md does not name the command {command}"


def names(pattern, sources):
    return {name for path in sources for name in re.findall(pattern, path.read_text(encoding="utf-8"))}


def metrics():
    """Takes the names from alert rules and dashboard, which tests/metrics checks against the running binary."""
    text = page("monitoring.md")
    used = names(r"\bcitetap_[a-z_]+", [ROOT / "deploy/prometheus/rules.yml", ROOT / "deploy/grafana/citetap.json"])
    for name in sorted(used):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        if not name.endswith("_") and base not in text:
            yield f"monitoring.md does not name {base}"


def problems():
    text = page("http-api.md") + page("search.md") + page("tasks.md")
    for kind in sorted(names(r'StatusCode::\w+, "([a-z-]+)",', [ROOT / "src/app/problem.rs"])):
        if f"`{kind}`" not in text:
            yield f"http-api.md does not name the problem {kind}"


def inputs():
    """Compares the numbered inputs of tests/README.md with the tests."""
    listed = set(re.findall(r"^\| ([fhljcs]\d\d) \|", (ROOT / "tests/README.md").read_text(encoding="utf-8"), re.M))
    tested = names(r"\bfn ([fhljcs]\d\d)_", [path for folder in ("src", "tests/it") for path in (ROOT / folder).rglob("*.rs")])
    for number in sorted(listed ^ tested):
        yield f"tests/README.md lists {number}, which no test begins with" if number in listed else f"tests/README.md does not list {number}"


def main():
    found = [complaint for check in (keys, endpoints, commands, metrics, problems, inputs) for complaint in check()]
    print("\n".join(found) or "nothing is missing")
    sys.exit(bool(found))


main()
