"""The Helm chart, by Helm: linted, rendered with every file in its ci/, and refused where it has to be."""

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
# Nobody's settings and plugins.
ENV = {**os.environ, **{f"HELM_{kind}_HOME": "/nonexistent" for kind in ("CACHE", "CONFIG", "DATA")}}


def helm(*arguments):
    done = subprocess.run([HELM, *map(str, arguments)], env=ENV, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=60)
    said = [line for line in done.stderr.splitlines() if "found symbolic link" not in line]
    return done.returncode, done.stdout, "\n".join(said)


def rendered(place):
    chart = place.deploy / "helm/citetap"
    for values in sorted(chart.glob("ci/*.yaml")):
        yield from (f"{values.stem}: {complaint}" for complaint in one(place, chart, values))
    # The example that readers copy.
    shown = re.search(r"^```yaml\n# values.yaml\n(.*?)^```", (place.deploy / "README.md").read_text(), re.S | re.M)
    values = place.folder() / "readme-values.yaml"
    values.write_text(shown[1] if shown else "")
    yield from (f"README.md: {complaint}" for complaint in one(place, chart, values))


def one(place, chart, values):
    code, out, said = helm("lint", "--strict", "-f", values, chart)
    if code:
        yield f"helm lint: {out} {said}"
        return
    code, out, said = helm("template", "citetap", chart, "--namespace", "citetap", "-f", values)
    if code:
        yield f"helm template: {said}"
        return
    found = documents(out)
    wrong = list(schemas(place, found))
    yield from wrong
    if not wrong:
        yield from objects.check(place, found)
    if values.parent.name == "ci":
        yield from golden(place, values.stem.removesuffix("-values"), out)


def schemas(place, found):
    """Kubernetes' own, and for the Prometheus operator's two kinds the part of theirs that the chart uses."""
    custom = json.loads((place.root / "tests/deploy/operator.schema.json").read_text())
    for document in found:
        if document["kind"] in custom:
            for error in jsonschema.Draft7Validator(custom[document["kind"]]).iter_errors(document):
                yield f"{document['kind']}: {'/'.join(map(str, error.path))}: {error.message[:200]}"
        else:
            yield from kubernetes.schema([document])


def golden(place, name, out):
    path = place.root / f"tests/deploy/golden/{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(out)
    if not path.exists():
        return ["no golden rendering: UPDATE_GOLDEN=1 tests/deploy/run --only chart"]
    expected = path.read_text()
    if out == expected:
        return []
    pairs = zip(out.splitlines(), expected.splitlines())
    at = next((number for number, (is_, was) in enumerate(pairs, 1) if is_ != was), "its end")
    return [f"another rendering than {path.name} from line {at} on: if it is meant, UPDATE_GOLDEN=1 tests/deploy/run"]


def carried(place):
    """Alerts and dashboard are those of deploy/, and Helm leaves their braces alone."""
    chart = place.deploy / "helm/citetap"
    code, out, said = helm("template", "citetap", chart, "-f", chart / "ci/default-values.yaml",
                           "--set", "prometheusRule.enabled=true,grafanaDashboard.enabled=true")
    if code:
        yield f"helm template: {said}"
        return
    found = documents(out)
    yield from schemas(place, found)
    rule = next((document for document in found if document["kind"] == "PrometheusRule"), {})
    if rule.get("spec") != documents((place.deploy / "prometheus/rules.yml").read_text())[0]:
        yield "the PrometheusRule is not deploy/prometheus/rules.yml"
    boards = [document["data"]["citetap.json"] for document in found if "citetap.json" in document.get("data", {})]
    board = boards[0] if boards else "{}"
    if json.loads(board) != json.loads((place.deploy / "grafana/citetap.json").read_text()):
        yield "the dashboard is not deploy/grafana/citetap.json"


def refused(place):
    """What must not be installed, and the sentence that says why: the schema's, and the templates' without a schema."""
    chart = place.deploy / "helm/citetap"
    for values, by_schema, by_template in REFUSALS:
        sets = [part for value in values for part in ("--set", value)]
        for words, more in ((by_schema, []), (by_template, ["--skip-schema-validation"])):
            if words is None:
                continue
            code, _, said = helm("template", "citetap", chart, "-f", chart / "ci/default-values.yaml", *sets, *more)
            if code == 0:
                yield f"{' '.join([*values, *more])} is not refused"
            elif words not in said:
                yield f"{' '.join([*values, *more])} is refused with {said!r}, not with {words!r}"
    code, _, said = helm("template", "citetap", chart)
    if code == 0 or "config.routes is empty" not in said:
        yield f"without values: {code} {said!r}"


def names(place):
    """The chart is of this version; values, schema and templates know the same names."""
    chart = place.deploy / "helm/citetap"
    for path in [chart / "Chart.yaml", chart / "values.yaml", *sorted(chart.glob("ci/*.yaml"))]:
        yield from lint(path)
        yield from passwords(path.read_text(), path.name)
    meta = documents((chart / "Chart.yaml").read_text())[0]
    version = tomllib.loads((place.root / "Cargo.toml").read_text())["package"]["version"]
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
