"""Checks the Helm chart with Helm: lint, rendering with every file in ci/, and values that must be refused."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema

import kubernetes
import objects
from common import documents, lint, passwords
from refusals import REFUSALS

HELM = Path(sys.executable).parent / "helm"
# Without the user's Helm settings and plugins.
ENV = {**os.environ, **{f"HELM_{kind}_HOME": "/nonexistent" for kind in ("CACHE", "CONFIG", "DATA")}}


def helm(*arguments):
    done = subprocess.run([HELM, *map(str, arguments)], env=ENV, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)
    stderr = [line for line in done.stderr.splitlines() if "found symbolic link" not in line]
    return done.returncode, done.stdout, "\n".join(stderr)


def rendered(repo):
    chart = repo.deploy / "helm/citetap"
    for values in sorted(chart.glob("ci/*.yaml")):
        yield from (f"{values.stem}: {complaint}" for complaint in one(repo, chart, values))
    # The example that readers copy.
    shown = re.search(r"^```yaml\n# values.yaml\n(.*?)^```", (repo.deploy / "README.md").read_text(), re.S | re.M)
    values = repo.folder() / "readme-values.yaml"
    values.write_text(shown[1] if shown else "")
    yield from (f"README.md: {complaint}" for complaint in one(repo, chart, values))


def one(repo, chart, values):
    code, out, stderr = helm("lint", "--strict", "-f", values, chart)
    if code:
        yield f"helm lint: {out} {stderr}"
        return
    code, out, stderr = helm("template", "citetap", chart, "--namespace", "citetap", "-f", values)
    if code:
        yield f"helm template: {stderr}"
        return
    found = documents(out)
    wrong = list(schemas(repo, found))
    yield from wrong
    if not wrong:
        yield from objects.check(repo, found)
    if values.parent.name == "ci":
        yield from golden(repo, values.stem.removesuffix("-values"), out)


def schemas(repo, found):
    """Validates with Kubernetes' schemas, and the Prometheus operator's two kinds with the part that the chart uses."""
    custom = json.loads((repo.root / "tests/deploy/operator.schema.json").read_text())
    for document in found:
        if document["kind"] in custom:
            for error in jsonschema.Draft7Validator(custom[document["kind"]]).iter_errors(document):
                yield f"{document['kind']}: {'/'.join(map(str, error.path))}: {error.message[:200]}"
        else:
            yield from kubernetes.schema([document])


def golden(repo, name, out):
    path = repo.root / f"tests/deploy/golden/{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(out)
    if not path.exists():
        return ["no golden rendering: UPDATE_GOLDEN=1 tests/deploy/run --only chart"]
    expected = path.read_text()
    if out == expected:
        return []
    pairs = zip(out.splitlines(), expected.splitlines())
    at = next((number for number, (is_, was) in enumerate(pairs, 1) if is_ != was), "its end")
    return [f"another rendering than {path.name} from line {at} on: if intended, UPDATE_GOLDEN=1 tests/deploy/run"]


def carried(repo):
    """Checks that the alerts and the dashboard are those of deploy/, with their braces unchanged by Helm."""
    chart = repo.deploy / "helm/citetap"
    code, out, stderr = helm("template", "citetap", chart, "-f", chart / "ci/default-values.yaml",
                           "--set", "prometheusRule.enabled=true,grafanaDashboard.enabled=true")
    if code:
        yield f"helm template: {stderr}"
        return
    found = documents(out)
    yield from schemas(repo, found)
    rule = next((document for document in found if document["kind"] == "PrometheusRule"), {})
    if rule.get("spec") != documents((repo.deploy / "prometheus/rules.yml").read_text())[0]:
        yield "the PrometheusRule is not deploy/prometheus/rules.yml"
    boards = [document["data"]["citetap.json"] for document in found if "citetap.json" in document.get("data", {})]
    board = boards[0] if boards else "{}"
    if json.loads(board) != json.loads((repo.deploy / "grafana/citetap.json").read_text()):
        yield "the dashboard is not deploy/grafana/citetap.json"


def refused(repo):
    """Checks that invalid values are refused with the right message: by the schema, and by the templates without a schema."""
    chart = repo.deploy / "helm/citetap"
    for values, by_schema, by_template in REFUSALS:
        sets = [part for value in values for part in ("--set", value)]
        for words, more in ((by_schema, []), (by_template, ["--skip-schema-validation"])):
            if words is None:
                continue
            code, _, stderr = helm("template", "citetap", chart, "-f", chart / "ci/default-values.yaml", *sets, *more)
            if code == 0:
                yield f"{' '.join([*values, *more])} is not refused"
            elif words not in stderr:
                yield f"{' '.join([*values, *more])} is refused with {stderr!r}, not with {words!r}"
    code, _, stderr = helm("template", "citetap", chart)
    if code == 0 or "config.routes is empty" not in stderr:
        yield f"without values: {code} {stderr!r}"


def names(repo):
    """Checks that the chart has citetap's version, and that values, schema and templates have the same names."""
    chart = repo.deploy / "helm/citetap"
    for path in [chart / "Chart.yaml", chart / "values.yaml", *sorted(chart.glob("ci/*.yaml"))]:
        yield from lint(path)
        yield from passwords(path.read_text(), path.name)
    meta = documents((chart / "Chart.yaml").read_text())[0]
    version = tomllib.loads((repo.root / "Cargo.toml").read_text())["package"]["version"]
    if meta["appVersion"] != version:
        yield f"appVersion is {meta['appVersion']}, and citetap is {version}"
    values = documents((chart / "values.yaml").read_text())[0]
    schema = json.loads((chart / "values.schema.json").read_text())
    text = "".join(path.read_text() for path in (chart / "templates").rglob("*") if path.is_file())
    yield from differ("", values, schema)
    for name in values:
        if not re.search(rf"\.Values\.{name}\b", text):
            yield f"values.yaml: no template uses {name}"


def differ(at, values, schema):
    if schema.get("additionalProperties") is not False:
        return
    for name in sorted(set(values) ^ (set(schema["properties"]) - {"global", "claims"})):
        yield f"{at}{name} is in {'values.yaml' if name in values else 'values.schema.json'} alone"
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(schema["properties"].get(name), dict):
            yield from differ(f"{at}{name}.", value, schema["properties"][name])
